#pragma once

#include "backend/cpu/linear_kernels.h"

namespace pergola::portable {

/// Kernels for trellises that every processor can run.
void add_trellis_kernels(KernelTable& table);

}  // namespace pergola::portable
