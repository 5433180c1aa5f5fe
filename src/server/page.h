#pragma once

#include "server/http.h"

namespace pergola {

/// The chat page: one document without anything from elsewhere.
HttpResponse chat_page();

}  // namespace pergola
