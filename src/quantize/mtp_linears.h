#pragma once

#include <vector>

#include "format/checkpoint.h"
#include "trellis/linear_view.h"

namespace pergola {

/// The linears under `mtp.` of a source model that the format quantises, fused experts taken apart; named by their
/// tensor prefix in the result. Empty where a model has none.
std::vector<LinearView> mtp_linears(const Checkpoint& source);

}  // namespace pergola
