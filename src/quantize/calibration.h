#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "quantize/converter.h"

namespace pergola {

/// The text that the program carries for calibration (data/calibration/README.md says where it is from).
std::string builtin_calibration_text();

/// Cuts a tokenised text into up to `rows` rows of `columns` tokens: a tenth of them (at least one) uniformly random
/// ids below `vocab_size`, the others windows of the text, evenly spread over it when it is longer than needed. Fewer
/// rows when the text is short. Throws Error when the text has not one row.
CalibrationTokens make_calibration(std::span<const std::int32_t> text, std::int64_t rows, std::int64_t columns,
                                   std::int64_t vocab_size, std::uint64_t seed);

/// Rows of uniformly random ids below `vocab_size`: for models without a tokenizer.
CalibrationTokens random_calibration(std::int64_t rows, std::int64_t columns, std::int64_t vocab_size,
                                     std::uint64_t seed);

}  // namespace pergola
