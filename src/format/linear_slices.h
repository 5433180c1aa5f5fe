#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/index_range.h"
#include "trellis/linear_view.h"

namespace pergola {

/// Gives `size` bytes that live as long as the slices do, under a name that is different for different content; `fill`
/// writes them.
using SliceStorage = std::function<std::span<const std::byte>(const std::string& name, std::size_t size,
                                                              const std::function<void(std::byte*)>& fill)>;

/// The outputs of `linear` that the ranges name, one range after the other, as a linear of its own. One range of a
/// dense weight stays where it is; anything else is copied. Throws Error naming `file` for a trellis when ranges do not
/// start and end at multiples of 128 (its transform mixes blocks of 128 outputs), but for the last output.
LinearView select_outputs(const LinearView& linear, std::span<const IndexRange> ranges, const std::string& file,
                          const SliceStorage& storage);

/// The part of `linear` that works on these inputs: the sum over parts that cover all inputs is the whole. A trellis
/// stays where it is, a dense weight is copied. The bias goes with the first input. Throws Error as select_outputs.
LinearView select_inputs(const LinearView& linear, IndexRange range, const std::string& file,
                         const SliceStorage& storage);

}  // namespace pergola
