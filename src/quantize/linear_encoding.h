#pragma once

#include <cstdint>
#include <string>

#include "quantize/converter.h"
#include "quantize/linear_quantizer.h"

namespace pergola {

/// The next multiple of the format's block width.
std::int64_t padded(std::int64_t width);

/// Encodes a dense linear in its padded widths, with random signs that depend on the seed of `options` and on `key`.
QuantizedLinear encode_linear(LinearQuantizer& quantizer, const std::string& key, const LinearView& view, int bits,
                              const QuantizeOptions& options, const Hessian* hessian);

}  // namespace pergola
