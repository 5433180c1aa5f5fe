#include "backend/opencl/linear.h"

#include <cassert>

namespace pergola::opencl {

namespace {

constexpr std::int64_t kDenseRows = 4;  // of one work-group of dense_linear

std::vector<const LinearView*> pointers(std::span<const LinearView> views) {
  std::vector<const LinearView*> all;
  for (const LinearView& view : views) all.push_back(&view);
  return all;
}

}  // namespace

OpenClLinears::OpenClLinears(Device& device, std::span<const LinearView> members, std::int64_t max_rows,
                             const RowTiles& tiles)
    : bound_(device, pointers(members), members.front().name), tiles_(tiles) {
  if (const std::uint32_t kinds = bound_.kinds() & kTrellisKinds; kinds != 0) {
    for (std::size_t i = 0; i <= tiles_.index_for(max_rows); ++i) {
      const std::string options = matrix_options(device, kinds, tiles_.at(i), tiles_.at(i).wide);
      kernels_.push_back(&device.kernel("linear.cl", "trellis_linear", options));
    }
  }
  if (bound_.kinds() > kTrellisKinds) dense_kernel_ = &device.kernel("dense.cl", "dense_linear", device.base_options());
}

std::size_t OpenClLinears::device_bytes(std::span<const LinearView> members) {
  std::size_t bytes = members.size() * sizeof(Matrix);
  for (const LinearView& view : members) bytes += opencl::device_bytes(view);
  return bytes;
}

void OpenClLinears::run(Device& device, const FloatMatrix& x, std::span<const FloatMatrix> outs) const {
  assert(outs.size() == bound_.matrices().size());
  if (x.rows == 0) return;
  if (!kernels_.empty()) run_trellis(device, x, outs);
  for (std::size_t i = 0; i < outs.size(); ++i)
    if (bound_.matrices()[i].dense()) run_dense(device, i, x, outs[i]);
}

void OpenClLinears::run_trellis(Device& device, const FloatMatrix& x, std::span<const FloatMatrix> outs) const {
  const std::size_t index = tiles_.index_for(x.rows);
  const Variant& tile = tiles_.at(index);
  const Kernel& kernel = *kernels_[index];
  LinearOutputs outputs;
  std::uint32_t blocks = 0, widest = 0;
  cl_mem memory = nullptr;
  const auto flush = [&] {
    if (outputs.count == 0) return;
    const std::int64_t tiles = (x.rows + tile.rows - 1) / tile.rows;
    const std::int64_t parts =
        input_parts(device.facts().lanes(), blocks * tiles, tile.rows, widest, kernel.most_work_items);
    const auto arenas = bound_.arenas().memories();
    device.launch(kernel, {{blocks, static_cast<std::size_t>(tiles), 1}, {64, static_cast<std::size_t>(parts), 1}},
                  arenas[0], arenas[1], arenas[2], arenas[3], bound_.table(), x.memory, x.offset, x.stride,
                  static_cast<cl_uint>(x.rows), memory, outputs, LocalBytes{scratch_bytes(tile, parts)});
    outputs = {};
    blocks = widest = 0;
  };
  for (std::size_t i = 0; i < outs.size(); ++i) {
    const Matrix& matrix = bound_.matrices()[i];
    if (matrix.dense()) continue;
    if (outputs.count == kMostMembers || outs[i].memory != memory) flush();
    memory = outs[i].memory;
    outputs.offset[outputs.count] = outs[i].offset;
    outputs.stride[outputs.count] = outs[i].stride;
    outputs.first[outputs.count] = blocks;
    outputs.matrix[outputs.count] = static_cast<std::uint32_t>(i);
    ++outputs.count;
    blocks += matrix.blocks();
    widest = std::max(widest, matrix.stored_in);
  }
  flush();
}

void OpenClLinears::run_dense(Device& device, std::size_t member, const FloatMatrix& x, const FloatMatrix& out) const {
  const Matrix& matrix = bound_.matrices()[member];
  const std::size_t tiles = static_cast<std::size_t>((x.rows + kDenseRows - 1) / kDenseRows);
  device.launch(*dense_kernel_, {{matrix.out, tiles, 1}, {64, 1, 1}}, bound_.arenas().memories()[matrix.arena],
                cl_ulong{matrix.weights}, cl_uint{matrix.kind - Matrix::kDenseKind}, cl_ulong{matrix.bias}, x.memory,
                x.offset, x.stride, cl_uint{matrix.in}, static_cast<cl_uint>(x.rows), out.memory, out.offset,
                out.stride);
}

}  // namespace pergola::opencl
