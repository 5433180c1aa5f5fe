#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"

namespace pergola {

/// One operation at one shape, computed by two backends from the same random inputs.
struct OperationCheck {
  std::string operation;
  std::string shape;
  double error =
      0;  ///< sqrt(sum (tested - reference)^2 / sum reference^2) over all results; infinite when one is not finite
  double tolerance = 0;  ///< of docs/numerics.md
  double seconds = 0;    ///< of one call on the tested backend

  bool passed() const { return error <= tolerance; }
};

/// Runs every operation of the backend interface on both backends: odd widths, mixed groups, several sequences, prefill
/// and decode; with `every_kind`, also every K of every codebook. Both must have been opened with max_rows >=
/// kCheckRows.
std::vector<OperationCheck> check_operations(Backend& tested, Backend& reference, bool every_kind = true);

inline constexpr std::int64_t kCheckRows = 160;

}  // namespace pergola
