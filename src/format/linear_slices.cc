#include "format/linear_slices.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "trellis/hadamard.h"
#include "trellis/tile.h"

namespace pergola {

namespace {

std::string ranges_text(std::span<const IndexRange> ranges) {
  std::string text;
  for (const IndexRange& range : ranges) text += fmt::format("[{}+{}]", range.first, range.count);
  return text;
}

std::int64_t total(std::span<const IndexRange> ranges) {
  std::int64_t sum = 0;
  for (const IndexRange& range : ranges) sum += range.count;
  return sum;
}

/// Copies rows of `row_bytes` bytes.
void copy_rows(std::span<const IndexRange> ranges, std::span<const std::byte> from, std::size_t row_bytes,
               std::byte* to) {
  for (const IndexRange& range : ranges) {
    const std::size_t bytes = static_cast<std::size_t>(range.count) * row_bytes;
    std::memcpy(to, from.data() + static_cast<std::size_t>(range.first) * row_bytes, bytes);
    to += bytes;
  }
}

std::int64_t padded(std::int64_t width) {
  return (width + kHadamardBlock - 1) / kHadamardBlock * kHadamardBlock;
}

void check_blocks(const LinearView& linear, IndexRange range, std::int64_t width, const char* what,
                  const std::string& file) {
  const std::int64_t end = range.first + range.count;
  if (range.first % kHadamardBlock != 0 || (end % kHadamardBlock != 0 && end != width)) {
    fail({.file = file, .tensor = linear.name + ".trellis"},
         "{} {} to {} of this linear cannot be taken apart: they are no whole blocks of {}", what, range.first, end,
         kHadamardBlock);
  }
}

}  // namespace

LinearView select_outputs(const LinearView& linear, std::span<const IndexRange> ranges, const std::string& file,
                          const SliceStorage& storage) {
  const std::int64_t out = total(ranges);
  const std::string name = linear.name + ranges_text(ranges);
  LinearView view{.name = linear.name, .in_features = linear.in_features, .out_features = out};
  const auto take = [&](const DenseView& from, std::int64_t columns, const char* what) {
    const std::size_t row = static_cast<std::size_t>(columns) * size_of(from.dtype);
    const std::size_t size = static_cast<std::size_t>(out) * row;
    if (ranges.size() == 1) return from.bytes.subspan(static_cast<std::size_t>(ranges[0].first) * row, size);
    return storage(name + what, size, [&](std::byte* to) { copy_rows(ranges, from.bytes, row, to); });
  };
  if (linear.bias) view.bias = DenseView{linear.bias->dtype, 1, out, take(*linear.bias, 1, ".bias")};
  if (const DenseView* dense = linear.dense()) {
    view.weight = DenseView{dense->dtype, out, linear.in_features, take(*dense, linear.in_features, ".weight")};
    return view;
  }
  const TrellisView& trellis = *linear.trellis();
  for (const IndexRange& range : ranges) check_blocks(linear, range, linear.out_features, "outputs", file);
  const std::int64_t width = padded(out);
  const auto tile = static_cast<std::size_t>(32 * trellis.bits);
  const std::size_t rows = static_cast<std::size_t>(trellis.in_features / kTileSide);
  const std::size_t stored_row = static_cast<std::size_t>(trellis.out_features / kTileSide) * tile;
  std::vector<IndexRange> tiles;
  std::vector<IndexRange> columns;
  for (const IndexRange& range : ranges) {
    columns.push_back({range.first, padded(range.count)});
    tiles.push_back({range.first / kTileSide, padded(range.count) / kTileSide});
  }
  TrellisView part = trellis;
  part.out_features = width;
  part.trellis =
      storage(name + ".trellis", rows * static_cast<std::size_t>(width / kTileSide) * tile, [&](std::byte* to) {
        for (std::size_t row = 0; row < rows; ++row) {
          copy_rows(tiles, trellis.trellis.subspan(row * stored_row, stored_row), tile,
                    to + row * static_cast<std::size_t>(width / kTileSide) * tile);
        }
      });
  part.svh = storage(name + ".svh", static_cast<std::size_t>(width) * sizeof(Half),
                     [&](std::byte* to) { copy_rows(columns, trellis.svh, sizeof(Half), to); });
  view.weight = part;
  return view;
}

LinearView select_inputs(const LinearView& linear, IndexRange range, const std::string& file,
                         const SliceStorage& storage) {
  LinearView view{.name = linear.name, .in_features = range.count, .out_features = linear.out_features};
  if (range.first == 0) view.bias = linear.bias;
  if (const DenseView* dense = linear.dense()) {
    const std::size_t element = size_of(dense->dtype);
    const std::size_t row = static_cast<std::size_t>(range.count) * element;
    const std::size_t stored_row = static_cast<std::size_t>(dense->columns) * element;
    const auto fill = [&](std::byte* to) {
      for (std::int64_t i = 0; i < dense->rows; ++i, to += row)
        copy_rows({&range, 1}, dense->bytes.subspan(static_cast<std::size_t>(i) * stored_row, stored_row), element, to);
    };
    const std::string name = fmt::format("{}.inputs[{}+{}]", linear.name, range.first, range.count);
    view.weight = DenseView{dense->dtype, dense->rows, range.count,
                            storage(name, static_cast<std::size_t>(dense->rows) * row, fill)};
    return view;
  }
  const TrellisView& trellis = *linear.trellis();
  check_blocks(linear, range, linear.in_features, "inputs", file);
  const std::int64_t width = padded(range.count);
  const auto stored_row = static_cast<std::size_t>(trellis.out_features / kTileSide * 32 * trellis.bits);
  TrellisView part = trellis;
  part.in_features = width;
  part.trellis = trellis.trellis.subspan(static_cast<std::size_t>(range.first / kTileSide) * stored_row,
                                         static_cast<std::size_t>(width / kTileSide) * stored_row);
  part.suh = trellis.suh.subspan(static_cast<std::size_t>(range.first) * sizeof(Half),
                                 static_cast<std::size_t>(width) * sizeof(Half));
  view.weight = part;
  return view;
}

}  // namespace pergola
