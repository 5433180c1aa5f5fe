#include "backend/cuda/reconstruct.h"

#include "backend/cuda/input_transform.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/trellis_decode.cuh"

namespace pergola::cuda {

namespace {

struct TransformRowsParams {
  TrellisTask task;  ///< x, its stride and width, suh
  TaskList list;     ///< only its input type
  __half* out;
  std::int64_t k;
};

__global__ void __launch_bounds__(128) transform_rows(const __grid_constant__ TransformRowsParams p) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const int lane = threadIdx.x & 31, sub = lane & 7,
            block = static_cast<int>((blockIdx.x * 4 + (threadIdx.x >> 5)) * 4 + (lane >> 3));
  const std::int64_t row = blockIdx.y;
  const bool inside = block * 128 < p.k;
  float low[8] = {}, high[8] = {};
  if (inside) {
    load_input<true>(p.list, p.task, row, block, sub, low, high);
  }
  hadamard_block(low, high, sub);
  if (!inside) return;
  __half* to = p.out + row * p.k + block * 128 + sub * 8;
  *reinterpret_cast<uint4*>(to) = make_uint4(pack_half(low[0], low[1]), pack_half(low[2], low[3]),
                                             pack_half(low[4], low[5]), pack_half(low[6], low[7]));
  *reinterpret_cast<uint4*>(to + 64) = make_uint4(pack_half(high[0], high[1]), pack_half(high[2], high[3]),
                                                  pack_half(high[4], high[5]), pack_half(high[6], high[7]));
}

struct ReconstructParams {
  const std::byte* packed;
  __half* out;
  CodebookConstants constants;
  int units;       ///< of the inputs
  int half_units;  ///< in all
};

/// A warp takes half a unit: 64 inputs of 64 columns. Four lanes fill 128 contiguous bytes of a column.
template <Family kFamily, int K>
__global__ void __launch_bounds__(256) reconstruct(const __grid_constant__ ReconstructParams p) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const int lane = threadIdx.x & 31, q = lane & 3, g = lane >> 2,
            index = static_cast<int>(blockIdx.x * 8 + (threadIdx.x >> 5));
  if (index >= p.half_units) return;
  const int half = index & 1, unit = index >> 1, group = unit / p.units, k_unit = unit - group * p.units;
  const uint4* from = reinterpret_cast<const uint4*>(p.packed) + static_cast<std::int64_t>(index) * K * 32 + lane;
  std::uint32_t words[4 * K];
#pragma unroll
  for (int i = 0; i < K; ++i) {
    const uint4 v = __ldcs(from + i * 32);
    words[4 * i] = v.x;
    words[4 * i + 1] = v.y;
    words[4 * i + 2] = v.z;
    words[4 * i + 3] = v.w;
  }
  const std::int64_t width = static_cast<std::int64_t>(p.units) * 64;
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    ColumnPair<K> pair;
#pragma unroll
    for (int i = 0; i < K; ++i) pair.word[i] = words[tile * K + i];
    pair.previous = __shfl_sync(~0u, pair.word[K - 1], (lane - 4) & 31);
    std::uint32_t a[16];
    exact_operands<kFamily, K>(pair, p.constants, a);
    uint4* to =
        reinterpret_cast<uint4*>(p.out + (group * 128 + half * 64 + tile * 16 + g) * width + k_unit * 64 + q * 16);
    to[0] = make_uint4(a[0], a[4], a[8], a[12]);
    to[1] = make_uint4(a[2], a[6], a[10], a[14]);
    to += width;  // eight columns further, in units of eight values
    to[0] = make_uint4(a[1], a[5], a[9], a[13]);
    to[1] = make_uint4(a[3], a[7], a[11], a[15]);
  }
}

template <int K>
auto reconstruct_kernel(Family family) {
  return family == Family::byte_sum ? reconstruct<Family::byte_sum, K> : reconstruct<Family::half_pair, K>;
}

auto reconstruct_kernel(TrellisKind kind) {
  const Family family = family_of(kind.codebook);
  switch (kind.bits) {
    case 1:
      return reconstruct_kernel<1>(family);
    case 2:
      return reconstruct_kernel<2>(family);
    case 3:
      return reconstruct_kernel<3>(family);
    case 4:
      return reconstruct_kernel<4>(family);
    case 5:
      return reconstruct_kernel<5>(family);
    case 6:
      return reconstruct_kernel<6>(family);
    case 7:
      return reconstruct_kernel<7>(family);
    default:
      return reconstruct_kernel<8>(family);
  }
}

struct TransformOutputsParams {
  const float* z;
  std::int64_t width;
  TrellisTask task;  ///< svh, bias, out
  int first_group;
  int groups;
};

/// A warp a row and group of 128 columns.
__global__ void __launch_bounds__(256) transform_outputs(const __grid_constant__ TransformOutputsParams p) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const int lane = threadIdx.x & 31, group = static_cast<int>(blockIdx.x * 8 + (threadIdx.x >> 5));
  if (group >= p.groups) return;
  const std::int64_t row = blockIdx.y;
  const float4 four = __ldcs(reinterpret_cast<const float4*>(p.z + row * p.width + group * 128 + lane * 4));
  float z[4] = {four.x, four.y, four.z, four.w};
  hadamard128(z, lane);
  write_row(p.task, static_cast<int>(row), p.first_group + group, lane, z);
}

unsigned ceil_div(std::int64_t a, std::int64_t b) {
  return static_cast<unsigned>((a + b - 1) / b);
}

}  // namespace

void launch_transform_rows(const LaunchContext& context, const MatrixView& x, const __half* suh, __half* out,
                           std::int64_t k) {
  TransformRowsParams params{};
  params.task.x = x.data;
  params.task.x_stride = x.stride;
  params.task.x_width = x.columns;
  params.task.suh = suh;
  params.list.x_f32 = x.f32;
  params.out = out;
  params.k = k;
  launch(context, transform_rows, dim3(ceil_div(k, 2048), static_cast<unsigned>(x.rows)), 128, 0, params);
}

void launch_reconstruct(const LaunchContext& context, const std::byte* packed, TrellisKind kind,
                        std::int64_t in_features, std::int64_t first, std::int64_t groups, __half* out) {
  const std::int64_t units = in_features / 64;
  const ReconstructParams params{packed + first * units * 1024 * kind.bits, out, constants_of(kind.codebook),
                                 static_cast<int>(units), static_cast<int>(2 * units * groups)};
  launch(context, reconstruct_kernel(kind), dim3(ceil_div(params.half_units, 8)), 256, 0, params);
}

void launch_transform_outputs(const LaunchContext& context, const float* z, std::int64_t width,
                              std::int64_t first_column, const __half* svh, const __half* bias, const MatrixView& out) {
  TransformOutputsParams params{};
  params.z = z;
  params.width = width;
  params.task.svh = svh;
  params.task.bias = bias;
  params.task.out = out.data;
  params.task.out_stride = out.stride;
  params.task.out_f32 = out.f32;
  params.task.columns = out.columns;
  params.first_group = static_cast<int>(first_column / 128);
  params.groups = static_cast<int>(width / 128);
  launch(context, transform_outputs, dim3(ceil_div(params.groups, 8), static_cast<unsigned>(out.rows)), 256, 0, params);
}

}  // namespace pergola::cuda
