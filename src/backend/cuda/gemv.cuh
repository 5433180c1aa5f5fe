// The GEMV kernel (gemv.h). A job is a group of 128 outputs of one matrix, or of several whose results are added; its
// inputs are blocks of 128, dealt to the thread blocks of a cluster. Each thread block: weights on their way by bulk
// copies, own inputs transformed into MMA fragments, eight warps decode and multiply (32 of the outputs and every other
// unit of inputs each), the sums transformed (the transform is linear, so parts can be), parts sent to the cluster's
// first block, which adds them in the order of ranks and writes.
#pragma once

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/dot.cuh"
#include "backend/cuda/gemv.h"
#include "backend/cuda/moe_pick.cuh"
#include "backend/cuda/tile_product.cuh"

namespace pergola::cuda {

/// One matrix's part in a job.
struct GemvSegment {
  TrellisTask task;  ///< of the job's column group: weights, suh, x, gate; svh and bias of the group's outputs
  float weight = 1;
  int bits = 0;
};

namespace gemv_detail {

constexpr int kWarps = kGemvThreads / 32;

__device__ __forceinline__ float element(const MatrixView& m, std::int64_t at) {
  return m.f32 != 0 ? static_cast<const float*>(m.data)[at] : __half2float(static_cast<const __half*>(m.data)[at]);
}

/// Four consecutive outputs of a row from `column` on, those beyond `columns` left out.
__device__ __forceinline__ void store_four(void* out, bool f32, std::int64_t at, int column, int columns,
                                           const float (&y)[4]) {
  if (column >= columns) return;
  const bool whole = column + 4 <= columns;
  if (f32) {
    float* to = static_cast<float*>(out) + at;
    if (whole && (reinterpret_cast<std::uintptr_t>(to) & 15) == 0) {
      *reinterpret_cast<float4*>(to) = make_float4(y[0], y[1], y[2], y[3]);
    } else {
      for (int i = 0; i < 4 && column + i < columns; ++i) to[i] = y[i];
    }
  } else {
    __half* to = static_cast<__half*>(out) + at;
    if (whole && (reinterpret_cast<std::uintptr_t>(to) & 7) == 0) {
      const __half2 pair[2] = {__floats2half2_rn(y[0], y[1]), __floats2half2_rn(y[2], y[3])};
      *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(pair);
    } else {
      for (int i = 0; i < 4 && column + i < columns; ++i) to[i] = __float2half_rn(y[i]);
    }
  }
}

/// Four values of a row's input from `at` on, times suh: (activation(gate) *) x, zero beyond the logical width.
__device__ __forceinline__ void load_four(const TrellisTask& task, const GemvCommon& common, int row, int at,
                                          float (&v)[4]) {
  const std::int64_t start = row * task.x_stride + at;
  const uint2 signs = *reinterpret_cast<const uint2*>(task.suh + at);
  const bool f32 = common.x_f32 != 0, gated = task.gate != nullptr;
  const void* const x = f32 ? static_cast<const void*>(static_cast<const float*>(task.x) + start)
                            : static_cast<const void*>(static_cast<const __half*>(task.x) + start);
  float gate[4];
  if (at + 4 <= task.x_width && (reinterpret_cast<std::uintptr_t>(x) & 15) % (f32 ? 16 : 8) == 0) {
    if (f32) {
      const float4 four = *static_cast<const float4*>(x);
      v[0] = four.x;
      v[1] = four.y;
      v[2] = four.z;
      v[3] = four.w;
      if (gated) {  // lies like x
        const float4 other = *reinterpret_cast<const float4*>(static_cast<const float*>(task.gate) + start);
        gate[0] = other.x;
        gate[1] = other.y;
        gate[2] = other.z;
        gate[3] = other.w;
      }
    } else {
      const uint2 four = *static_cast<const uint2*>(x);
      const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&four.x)),
                   b = __half22float2(*reinterpret_cast<const __half2*>(&four.y));
      v[0] = a.x;
      v[1] = a.y;
      v[2] = b.x;
      v[3] = b.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool inside = at + i < task.x_width;
      v[i] = !inside ? 0.0f : f32 ? static_cast<const float*>(x)[i] : __half2float(static_cast<const __half*>(x)[i]);
      gate[i] = inside && gated ? static_cast<const float*>(task.gate)[start + i] : 0.0f;
    }
  }
  const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&signs.x)),
               b = __half22float2(*reinterpret_cast<const __half2*>(&signs.y));
  const float sign[4] = {a.x, a.y, b.x, b.y};
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] *= (gated ? activate(common.activation, gate[i]) : 1.0f) * sign[i];
}

__device__ __forceinline__ void set_matrix(GemvSegment& segment, const std::byte* weights, const __half* suh,
                                           const __half* svh, const __half* bias, int bits, int blocks, int group) {
  segment.task.weights = weights + static_cast<std::int64_t>(group) * blocks * 2048 * bits;
  segment.task.suh = suh;
  segment.task.svh = svh + group * 128;
  segment.task.bias = bias != nullptr ? bias + group * 128 : nullptr;
  segment.task.gate = nullptr;
  segment.weight = 1;
  segment.bits = bits;
}

/// Rows that picked the same expert are done together: the first of every `chunk` picks of an expert takes them all
/// (`list`, `count`), and the others do nothing. All threads; whether there is something to do.
__device__ __forceinline__ bool gather_picks(const MoeParams& moe, int pick, int chunk, int& expert, int& count,
                                             int* list) {
  __shared__ unsigned same_in_warp[kWarps];
  const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31, picks = moe.rows * moe.top_k;
  expert = moe.pick_expert[pick];
  const bool same = thread < picks && moe.pick_expert[thread] == expert;
  const unsigned mask = __ballot_sync(~0u, same);
  if (lane == 0) same_in_warp[warp] = mask;
  __syncthreads();
  int ordinal = __popc(same_in_warp[pick >> 5] & ((1u << (pick & 31)) - 1)), all = 0,
      mine = __popc(mask & ((1u << lane) - 1));
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const int here = __popc(same_in_warp[w]);
    if (w < pick >> 5) ordinal += here;
    if (w < warp) mine += here;
    all += here;
  }
  if (ordinal % chunk != 0) return false;
  count = min(chunk, all - ordinal);
  if (same && mine >= ordinal && mine < ordinal + count) list[mine - ordinal] = thread;
  __syncthreads();
  return true;
}

// --- the kinds of launch: what a job is

struct LinearJob {
  static constexpr bool kWeightsAreKnown = true;  ///< before the kernel before has finished
  static constexpr bool kSeparate = false;        ///< segments are other outputs of the same inputs, not added
  const GemvLinears& p;
  int member, group;

  __device__ __forceinline__ LinearJob(const GemvLinears& params, int job) : p(params), member(0) {
    while (member + 1 < p.count && p.members[member + 1].first_job <= job) ++member;
    group = job - p.members[member].first_job;
  }
  __device__ __forceinline__ bool gather() { return true; }
  __device__ __forceinline__ int x_row(int row) const { return row; }
  __device__ __forceinline__ void choose() {}
  __device__ __forceinline__ void look_ahead() const {}
  __device__ __forceinline__ int rows() const { return p.x.rows; }
  __device__ __forceinline__ int blocks() const { return p.common.blocks; }
  __device__ __forceinline__ int columns(int) const { return p.members[member].columns - group * 128; }
  __device__ __forceinline__ int segment_of(int) const { return 0; }
  __device__ __forceinline__ int block_in(int block) const { return block; }
  __device__ __forceinline__ void resolve(int, GemvSegment& to) const {
    const GemvMember& m = p.members[member];
    set_matrix(to, m.weights, m.suh, m.svh, m.bias, m.bits, p.common.blocks, group);
    to.task.x = p.x.data;
    to.task.x_stride = p.x.stride;
    to.task.x_width = p.x.columns;
  }
  __device__ __forceinline__ void write(int, int row, int lane, const float (&y)[4]) const {
    const GemvMember& m = p.members[member];
    const int column = group * 128 + lane * 4;
    store_four(m.out, m.out_f32 != 0, row * m.out_stride + column, column, m.columns, y);
  }
  /// Dense members: a warp a column of this thread block's share of the job.
  template <int kMostDenseRows>
  __device__ __forceinline__ bool dense() const {
    const GemvMember& m = p.members[member];
    if (m.bits != 0) return false;
    const int lane = threadIdx.x & 31, size = cluster_size(), k = p.x.columns;
    const int here = min(128, m.columns - group * 128), first = group * 128 + cluster_rank() * here / size,
              last = group * 128 + (cluster_rank() + 1) * here / size;
    const bool is_aligned = rows_are_aligned(p.x.data, p.x.stride);
    bool waited = false;
    for (int column = first + static_cast<int>(threadIdx.x >> 5); column < last; column += kWarps) {
      const __half* row = reinterpret_cast<const __half*>(m.weights) + static_cast<std::int64_t>(column) * k;
      float sum[kMostDenseRows] = {};
      for (int from = 0; from < k; from += DenseStretch::kValues) {
        DenseStretch weights;
        weights.load(row, from, k);
        if (!waited) wait_for_previous_kernel();
        waited = true;
#pragma unroll
        for (int r = 0; r < kMostDenseRows; ++r) {
          if (r < p.x.rows) dot_stretch(weights, p.x.data, p.x.f32 != 0, r * p.x.stride, from, k, is_aligned, sum[r]);
        }
      }
#pragma unroll
      for (int r = 0; r < kMostDenseRows; ++r) {
        if (r >= p.x.rows) continue;
        const float y = sum_of_warp(sum[r]) + (m.bias != nullptr ? __half2float(m.bias[column]) : 0.0f);
        if (lane != 0) continue;
        const std::int64_t at = r * m.out_stride + column;
        if (m.out_f32 != 0) {
          static_cast<float*>(m.out)[at] = y;
        } else {
          static_cast<__half*>(m.out)[at] = __float2half_rn(y);
        }
      }
    }
    if (!waited) wait_for_previous_kernel();
    return true;
  }
};

struct GateUpJob {
  static constexpr bool kWeightsAreKnown = false, kSeparate = false;
  const GemvGateUp& p;
  int pick, side, group, first_row, expert, count = 1;
  const int* picks_here = nullptr;  ///< with `share`: the picks of this expert that the job takes

  __device__ __forceinline__ GateUpJob(const GemvGateUp& params, int job)
      : p(params), first_row(0), expert(params.moe.experts) {
    const int picks = p.moe.rows * p.moe.top_k, routed = picks * 2 * p.moe.groups_width;
    if (job < routed) {
      group = job % p.moe.groups_width;
      side = job / p.moe.groups_width % 2;
      pick = job / (2 * p.moe.groups_width);
    } else {
      group = (job - routed) % p.moe.groups_shared;
      side = (job - routed) / p.moe.groups_shared % 2;
      pick = -1;
      first_row = (job - routed) / (2 * p.moe.groups_shared) * p.shared_chunk;
    }
  }
  /// All threads; whether there is something to do.
  __device__ __forceinline__ bool gather() {
    if (p.share == 0 || pick < 0) return true;
    __shared__ int list[16];
    if (!gather_picks(p.moe, pick, p.shared_chunk, expert, count, list)) return false;
    picks_here = list;
    return true;
  }
  __device__ __forceinline__ int x_row(int row) const {
    return picks_here != nullptr ? picks_here[row] / p.moe.top_k : row;
  }
  /// Every thread block finds its own expert (its first and last warp do); one of each row writes down all of the
  /// row's.
  __device__ __forceinline__ void choose() {
    if (pick < 0 || p.share != 0) return;
    const int rank = pick % p.moe.top_k;
    const bool write = threadIdx.x < 32 && rank == p.moe.top_k - 1 && side == 0 && group == 0 && cluster_rank() == 0;
    expert = pick_experts(p.moe, pick / p.moe.top_k, rank, write);
  }
  /// The thread blocks of an expert together bring its other matrix into the L2 cache, for the launch after this one.
  __device__ __forceinline__ void look_ahead() const {
    const ExpertMatrix& m = p.moe.matrices[expert].down;
    const int groups = pick >= 0 ? p.moe.groups_width : p.moe.groups_shared,
              units = pick >= 0 ? p.moe.units_width : p.moe.units_shared, size = cluster_size();
    const int count = 2 * groups * size, index = (side * groups + group) * size + cluster_rank();
    const std::int64_t pieces = static_cast<std::int64_t>(units) * p.moe.groups_hidden * p.bits[m.kind];  // of 1 kB
    const std::int64_t from = pieces * index / count, to = pieces * (index + 1) / count;
    if (first_row == 0 && to > from)
      prefetch_to_l2(m.weights + from * 1024, static_cast<std::uint32_t>(to - from) * 1024);
  }
  __device__ __forceinline__ int rows() const {
    return pick >= 0 ? count : min(p.shared_chunk, p.moe.rows - first_row);
  }
  __device__ __forceinline__ int width() const { return pick >= 0 ? p.moe.width : p.moe.shared_width; }
  __device__ __forceinline__ int blocks() const { return p.common.blocks; }
  __device__ __forceinline__ int columns(int) const { return width() - group * 128; }
  __device__ __forceinline__ int segment_of(int) const { return 0; }
  __device__ __forceinline__ int block_in(int block) const { return block; }
  __device__ __forceinline__ void resolve(int, GemvSegment& to) const {
    const ExpertMatrix& m = side == 0 ? p.moe.matrices[expert].gate : p.moe.matrices[expert].up;
    set_matrix(to, m.weights, m.suh, m.svh, m.bias, p.bits[m.kind], p.common.blocks, group);
    const std::int64_t at = (pick < 0 ? first_row : p.share != 0 ? 0 : pick / p.moe.top_k) * p.moe.x.stride;
    to.task.x = p.moe.x.f32 != 0 ? static_cast<const void*>(static_cast<const float*>(p.moe.x.data) + at)
                                 : static_cast<const void*>(static_cast<const __half*>(p.moe.x.data) + at);
    to.task.x_stride = p.moe.x.stride;
    to.task.x_width = p.moe.hidden;
  }
  __device__ __forceinline__ void write(int, int row, int lane, const float (&y)[4]) const {
    const std::int64_t picks = static_cast<std::int64_t>(p.moe.rows) * p.moe.top_k;
    const std::int64_t own = picks_here != nullptr ? picks_here[row] : pick;
    const std::int64_t start =
        pick >= 0 ? own * p.moe.width : picks * p.moe.width + (first_row + row) * p.moe.shared_width;
    const int column = group * 128 + lane * 4;
    store_four(side == 0 ? p.moe.gate : p.moe.up, true, start + column, column, width(), y);
  }
  template <int>
  __device__ __forceinline__ bool dense() const {
    return false;
  }
};

struct DownJob {
  static constexpr bool kWeightsAreKnown = false, kSeparate = false;
  const GemvDown& p;
  int row, group;

  __device__ __forceinline__ DownJob(const GemvDown& params, int job)
      : p(params), row(job / params.moe.groups_hidden), group(job % params.moe.groups_hidden) {}
  __device__ __forceinline__ bool gather() { return true; }
  __device__ __forceinline__ int x_row(int row) const { return row; }
  __device__ __forceinline__ void choose() {}
  __device__ __forceinline__ void look_ahead() const {}
  __device__ __forceinline__ int rows() const { return 1; }
  __device__ __forceinline__ int blocks() const { return p.common.blocks; }
  __device__ __forceinline__ int columns(int) const { return p.moe.hidden - group * 128; }
  __device__ __forceinline__ int segment_of(int block) const {
    return min(block / (p.moe.units_width / 2), p.moe.top_k);
  }
  __device__ __forceinline__ int block_in(int block) const {
    return block - segment_of(block) * (p.moe.units_width / 2);
  }
  __device__ __forceinline__ void resolve(int segment, GemvSegment& to) const {
    const bool shared = segment == p.moe.top_k;
    const int pick = row * p.moe.top_k + segment;
    const ExpertMatrix& m = p.moe.matrices[shared ? p.moe.experts : p.moe.pick_expert[pick]].down;
    set_matrix(to, m.weights, m.suh, m.svh, m.bias, p.bits[m.kind],
               (shared ? p.moe.units_shared : p.moe.units_width) / 2, group);
    const std::int64_t picks = static_cast<std::int64_t>(p.moe.rows) * p.moe.top_k;
    const std::int64_t at = shared ? picks * p.moe.width + static_cast<std::int64_t>(row) * p.moe.shared_width
                                   : static_cast<std::int64_t>(pick) * p.moe.width;
    to.task.x = p.moe.up + at;
    to.task.gate = p.moe.gate + at;
    to.task.x_width = shared ? p.moe.shared_width : p.moe.width;
    to.task.x_stride = 0;
    if (!shared) {
      to.weight = p.moe.pick_weight[pick];
    } else if (p.moe.has_shared_gate != 0) {
      to.weight =
          1.0f / (1.0f + __expf(-p.moe.logits[static_cast<std::int64_t>(row) * p.moe.logits_stride + p.moe.experts]));
    }
  }
  __device__ __forceinline__ void write(int, int, int lane, const float (&y)[4]) const {
    const int column = group * 128 + lane * 4;
    store_four(p.moe.out.data, p.moe.out.f32 != 0, row * p.moe.out.stride + column, column, p.moe.hidden, y);
  }
  template <int>
  __device__ __forceinline__ bool dense() const {
    return false;
  }
};

/// Segments are column groups.
struct DownPartsJob {
  static constexpr bool kWeightsAreKnown = false, kSeparate = true;
  const GemvDownParts& p;
  int pick = -1, part, first_row = 0, expert, count = 1;
  const int* picks_here = nullptr;

  __device__ __forceinline__ DownPartsJob(const GemvDownParts& params, int job) : p(params), expert(p.moe.experts) {
    const int parts = (p.moe.groups_hidden + p.groups - 1) / p.groups, routed = p.moe.rows * p.moe.top_k;
    part = job % parts;
    if (job / parts < routed) {
      pick = job / parts;
    } else {
      first_row = (job / parts - routed) * p.shared_chunk;
    }
  }
  __device__ __forceinline__ bool gather() {
    if (pick < 0) return true;
    __shared__ int list[16];
    if (!gather_picks(p.moe, pick, p.shared_chunk, expert, count, list)) return false;
    picks_here = list;
    return true;
  }
  __device__ __forceinline__ int x_row(int row) const { return pick >= 0 ? picks_here[row] : row; }
  __device__ __forceinline__ void choose() {}
  __device__ __forceinline__ void look_ahead() const {}
  __device__ __forceinline__ int rows() const {
    return pick >= 0 ? count : min(p.shared_chunk, p.moe.rows - first_row);
  }
  __device__ __forceinline__ int inputs() const { return (pick >= 0 ? p.moe.units_width : p.moe.units_shared) / 2; }
  __device__ __forceinline__ int blocks() const {
    return min(p.groups, p.moe.groups_hidden - part * p.groups) * inputs();
  }
  __device__ __forceinline__ int columns(int segment) const { return p.moe.hidden - (part * p.groups + segment) * 128; }
  __device__ __forceinline__ int segment_of(int block) const { return block / inputs(); }
  __device__ __forceinline__ int block_in(int block) const { return block % inputs(); }
  __device__ __forceinline__ void resolve(int segment, GemvSegment& to) const {
    const ExpertMatrix& m = p.moe.matrices[expert].down;
    set_matrix(to, m.weights, m.suh, m.svh, m.bias, p.bits[m.kind], inputs(), part * p.groups + segment);
    const std::int64_t picks = static_cast<std::int64_t>(p.moe.rows) * p.moe.top_k;
    to.task.x_width = to.task.x_stride = pick >= 0 ? p.moe.width : p.moe.shared_width;
    const std::int64_t at =
        pick >= 0 ? 0 : picks * p.moe.width + static_cast<std::int64_t>(first_row) * p.moe.shared_width;
    to.task.x = p.moe.up + at;
    to.task.gate = p.moe.gate + at;
  }
  __device__ __forceinline__ void write(int segment, int row, int lane, const float (&y)[4]) const {
    const int column = (part * p.groups + segment) * 128 + lane * 4;
    const std::int64_t place = pick >= 0 ? picks_here[row] : p.moe.rows * p.moe.top_k + first_row + row;
    store_four(p.moe.down, true, place * p.moe.hidden + column, column, p.moe.hidden, y);
  }
  template <int>
  __device__ __forceinline__ bool dense() const {
    return false;
  }
};

}  // namespace gemv_detail

template <Family kFamily, int kBlocks>
struct GemvShape {
  static constexpr Operand kOperand = gemv_operand(kFamily);
  static constexpr int kFragment = activation_bytes(kOperand, kBlocks);  ///< bytes of 64 inputs
  static constexpr int kMostRows = rows_of(kOperand, kBlocks);
};

template <Family kFamily, int kBlocks, typename Job, typename Params>
__global__ void __launch_bounds__(kGemvThreads, kBlocks == 1 ? 3 : 2) gemv(const __grid_constant__ Params params) {
  using namespace gemv_detail;
  using Shape = GemvShape<kFamily, kBlocks>;
  constexpr Operand kOperand = Shape::kOperand;
  constexpr int kFragment = Shape::kFragment, kMostRows = Shape::kMostRows;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ std::uint64_t barriers[2 * kGemvMaxSlots + 1];
  __shared__ GemvSegment segments[kGemvMaxSegments];
  __shared__ __align__(16) __half svh[kGemvMaxSegments][128];

  const GemvCommon& common = params.common;
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int size = cluster_size(), rank = cluster_rank();
  const int slot_bytes = 2 * common.block_bytes, slots = common.slots;
  const std::uint32_t ring = shared_address(memory), full = shared_address(barriers), empty = full + 8 * kGemvMaxSlots,
                      arrived = full + 16 * kGemvMaxSlots;
  unsigned char* const fragments = memory + slots * slot_bytes;
  float* const sums =
      reinterpret_cast<float*>(fragments + common.local_blocks * 2 * kFragment);  // [segment][part][row][128]
  float* const inbox =
      sums + common.segments * 2 * common.max_rows * 128;  // [rank][row][128], of the cluster's first block
  float2* const scales =
      reinterpret_cast<float2*>(inbox + (size > 1 ? size * common.max_rows * 128 : 0));  // [block][row]

  Job job(params, static_cast<int>(blockIdx.x) / size);
  if (thread == 0) {
    for (int i = 0; i < slots; ++i) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, kWarps);
    }
    barrier_init(arrived, 1);
    fence_barrier_init();
  }
  if (job.template dense<kMostRows>()) {
    allow_next_kernel();
    cluster_arrive();
    cluster_wait();
    return;
  }
  if constexpr (!Job::kWeightsAreKnown) {
    wait_for_previous_kernel();
    if (!job.gather()) {
      allow_next_kernel();
      cluster_arrive();
      cluster_wait();
      return;
    }
    if (warp == 0 || warp == kWarps - 1) job.choose();
  }
  const int rows = job.rows(), blocks = job.blocks();
  const int first = rank * blocks / size, local = (rank + 1) * blocks / size - first;
  const int first_segment = job.segment_of(first);
  const int segment_count = local > 0 ? job.segment_of(first + local - 1) - first_segment + 1 : 0;
  if (thread < segment_count) job.resolve(first_segment + thread, segments[thread]);

  // --- weights, two blocks of inputs a slot
  const int rounds = (local + 1) / 2;
  const auto fill = [&](int round, int slot) {
    const std::uint32_t to = ring + slot * slot_bytes, barrier = full + 8 * slot;
    const int here = min(2, local - 2 * round);
    const std::byte* from[2];
    std::uint32_t bytes[2], all = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= here) continue;
      const int block = first + 2 * round + i;
      const GemvSegment& segment = segments[job.segment_of(block) - first_segment];
      bytes[i] = 2048u * static_cast<std::uint32_t>(segment.bits);
      from[i] = segment.task.weights + static_cast<std::int64_t>(job.block_in(block)) * bytes[i];
      all += bytes[i];
    }
    barrier_expect(barrier, all);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i < here) bulk_copy_once(to + i * common.block_bytes, from[i], bytes[i], barrier);
    }
  };
  // As early as can be: one thread has made the barriers and, with a single matrix, its description.
  __syncwarp();
  if (thread == 0) {
    for (int i = 0; i < min(slots, rounds); ++i) fill(i, i);
    if (rank == 0 && size > 1) barrier_expect(arrived, static_cast<std::uint32_t>(size * rows * 512));
  }
  __syncwarp();
  cluster_arrive();
  __syncthreads();
  if (thread == kGemvThreads - 1) job.look_ahead();
  // --- signs of the inputs on their way; scales of the outputs, used at the very end
  int inputs = local;  // blocks of inputs
  if constexpr (Job::kSeparate) inputs = job.inputs();
  for (int i = thread; i < inputs * 2; i += kGemvThreads) {
    const int block = first + (i >> 1);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(segments[job.segment_of(block) - first_segment].task.suh +
                                                  job.block_in(block) * 128 + (i & 1) * 64));
  }
  for (int i = kGemvThreads - 1 - thread; i < segment_count * 16; i += kGemvThreads) {
    const int s = i >> 4, column = (i & 15) * 8;
    *reinterpret_cast<uint4*>(&svh[s][column]) = *reinterpret_cast<const uint4*>(segments[s].task.svh + column);
  }
  if constexpr (Job::kWeightsAreKnown) wait_for_previous_kernel();
  allow_next_kernel();  // not earlier: kernels that wait would take the room of those that could run

  // --- inputs: a warp a block of 128, four values a lane
  const int items = rows * inputs;
  for (int item = warp; item < items; item += kWarps) {
    const int row = item / inputs, here = item - row * inputs, block = first + here, in_block = job.block_in(block);
    float v[4];
    load_four(segments[job.segment_of(block) - first_segment].task, common, job.x_row(row), in_block * 128 + lane * 4,
              v);
    hadamard128(v, lane);
    // The lane's values are rows 4 * (lane & 3) .. of 16 in band (lane >> 2) & 3 of unit lane >> 4.
    const int half = (lane >> 1) & 1, band = (lane >> 2) & 3;
    unsigned char* const to = fragments + (here * 2 + (lane >> 4)) * kFragment;
    if constexpr (kOperand == Operand::pairs) {
      std::uint32_t* const at = reinterpret_cast<std::uint32_t*>(to + (row >> 3) * 1024 + (lane & 1) * 512 +
                                                                 ((row & 7) * 4 + band) * 16 + half * 4);
      at[0] = pack_half(v[0] * kHadamardScale, v[1] * kHadamardScale);
      at[2] = pack_half(v[2] * kHadamardScale, v[3] * kHadamardScale);
    } else {  // integers of 16 bits, one scale for the 128 of a block
      const float mine = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
      const float most = fmaxf(__uint_as_float(__reduce_max_sync(~0u, __float_as_uint(mine))), 1.17549435e-38f);
      const float inverse = kIntegerRange / most;
      int upper[4], lower[4], total = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int value = __float2int_rn(v[i] * inverse);
        total += value;
        upper[i] = (value + 128) >> 8;
        lower[i] = value - upper[i] * 256;
      }
      total = __reduce_add_sync(~0u, total);
      const std::uint32_t u = pack_bytes(upper[0], upper[1], upper[2], upper[3]),
                          l = pack_bytes(lower[0], lower[1], lower[2], lower[3]);
      // Lanes with rows 0..7 gather upper bytes of all 16 rows, the others lower ones.
      const std::uint32_t other = __shfl_xor_sync(~0u, half == 0 ? l : u, 2), low = half == 0 ? u : other,
                          high = half == 0 ? other : l;
      const int column = 2 * row + half;
      *reinterpret_cast<uint2*>(to + (column >> 3) * 512 + ((column & 7) * 4 + band) * 16 + (lane & 1) * 8) =
          make_uint2(permute(low, high, 0x5140), permute(low, high, 0x7362));
      // A product sum S stands for scale * (kByteSumScale * S + kByteSumOffset * total).
      const float scale = most * (kHadamardScale / kIntegerRange);
      if (lane == 0)
        scales[here * common.max_rows + row] =
            make_float2(scale * kByteSumScale, scale * kByteSumOffset * static_cast<float>(total));
    }
  }
  __syncthreads();

  // --- decode and multiply: a warp has one unit of each block, and in it one tile of each half
  const int q = lane & 3, g = lane >> 2, tile = warp & 3, unit = warp >> 2;
  int lane_before = (lane - 4) & 31;
  asm volatile("" : "+r"(lane_before));  // keep it in a register
  const std::uint32_t own_fragments = shared_address(fragments) + unit * kFragment + lane * 16;
  // bytes: row n * 4 + q, columns g and g + 8; pairs: MMA accumulators.
  constexpr int kOuts = kOperand == Operand::bytes ? 2 : 4;
  float out[2][kBlocks][kOuts];
  int slot = 0;
  std::uint32_t parity = 0;
  const auto run = [&]<int K>(int from, int to) {
    const int first_input = Job::kSeparate ? from : 0;
#pragma unroll 1
    for (int here = from; here < to; ++here) {
      const int input = here - first_input;
      if ((here & 1) == 0) barrier_wait(full + 8 * slot, parity);
      const std::uint32_t words =
          ring + slot * slot_bytes + (here & 1) * common.block_bytes + unit * 1024 * K + lane * 16;
      std::uint32_t b[kBlocks][16];
#pragma unroll
      for (int n = 0; n < kBlocks; ++n)
        load_fragments<kOperand>(own_fragments + input * 2 * kFragment + n * (kOperand == Operand::bytes ? 512 : 1024),
                                 b[n]);
      ColumnPair<K> pair[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        load_tile_words<K>(words + half * 512 * K, tile, pair[half].word);
        pair[half].previous = __shfl_sync(~0u, pair[half].word[K - 1], lane_before);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        RowSum<kOperand> sum[kBlocks][4];
#pragma unroll
        for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if constexpr (kOperand == Operand::bytes) {
              sum[n][j] = 0;
            } else {
              sum[n][j] = out[half][n][j];
            }
          }
        }
        multiply_tile<kFamily, kOperand, K, kBlocks>(pair[half], common.constants, b, sum);
#pragma unroll
        for (int n = 0; n < kBlocks; ++n) {
          if constexpr (kOperand == Operand::bytes) {
            const float2 scale = scales[input * common.max_rows + min(n * 4 + q, common.max_rows - 1)];
#pragma unroll
            for (int j = 0; j < 2; ++j)
              out[half][n][j] +=
                  scale.x * (static_cast<float>(sum[n][2 * j]) * 256.0f + static_cast<float>(sum[n][2 * j + 1]));
            if (unit == 0) {  // the block's offset counts once
              out[half][n][0] += scale.y;
              out[half][n][1] += scale.y;
            }
          } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) out[half][n][j] = sum[n][j];
          }
        }
      }
      if ((here & 1) == 0 && here + 1 < local) continue;
      if (rounds > slots) {  // the slot is free; a different warp each time sees to its next content
        __syncwarp();
        if (lane == 0) {
          barrier_arrive(empty + 8 * slot);
          const int round = here >> 1;
          if (warp == (round & (kWarps - 1)) && round + slots < rounds) {
            barrier_wait(empty + 8 * slot, parity);
            fill(round + slots, slot);
          }
        }
        __syncwarp();
      }
      if (++slot == slots) {
        slot = 0;
        parity ^= 1;
      }
    }
  };
  for (int s = 0, from = 0; s < segment_count; ++s) {
    int to = from + 1;
    while (to < local && job.segment_of(first + to) - first_segment == s) ++to;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
        for (int j = 0; j < kOuts; ++j) out[half][n][j] = 0;
      }
    }
    // Branches rather than a table of targets, which would first have to be fetched.
    const int bits = segments[s].bits - 1;
    if ((bits & 4) != 0) {
      if ((bits & 2) != 0) {
        (bits & 1) != 0 ? run.template operator()<8>(from, to) : run.template operator()<7>(from, to);
      } else {
        (bits & 1) != 0 ? run.template operator()<6>(from, to) : run.template operator()<5>(from, to);
      }
    } else if ((bits & 2) != 0) {
      (bits & 1) != 0 ? run.template operator()<4>(from, to) : run.template operator()<3>(from, to);
    } else {
      (bits & 1) != 0 ? run.template operator()<2>(from, to) : run.template operator()<1>(from, to);
    }
    float* at = sums + (s * 2 + unit) * common.max_rows * 128 + tile * 16 + g;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
        for (int j = 0; j < kOuts; ++j) {
          const int row = kOperand == Operand::bytes ? n * 4 + q : n * 8 + 2 * q + (j & 1);
          const int column = half * 64 + (kOperand == Operand::bytes ? 8 * j : 8 * (j >> 1));
          if (row < rows) at[row * 128 + column] = out[half][n][j];
        }
      }
    }
    from = to;
  }
  __syncthreads();

  // --- sums of the block, transformed; parts to the first block of the cluster
  cluster_wait();  // the first block's barrier is ready
  const int outs = Job::kSeparate ? rows * segment_count : rows;
  for (int at = warp; at < outs; at += kWarps) {
    const int row = Job::kSeparate ? at / segment_count : at, from = Job::kSeparate ? at % segment_count : 0,
              end = Job::kSeparate ? from + 1 : segment_count;
    float y[4] = {};
    for (int s = from; s < end; ++s) {
      const float* parts = sums + (s * 2 * common.max_rows + row) * 128 + lane * 4;
      const float4 a = *reinterpret_cast<const float4*>(parts),
                   b = *reinterpret_cast<const float4*>(parts + common.max_rows * 128);
      float z[4] = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
      const GemvSegment& segment = segments[s];
      hadamard128(z, lane);
      const __half2* outputs = reinterpret_cast<const __half2*>(&svh[s][lane * 4]);
      const float2 s01 = __half22float2(outputs[0]), s23 = __half22float2(outputs[1]);
      const float factor = segment.weight * kHadamardScale;
      y[0] += factor * s01.x * z[0];
      y[1] += factor * s01.y * z[1];
      y[2] += factor * s23.x * z[2];
      y[3] += factor * s23.y * z[3];
      // The block that has the matrix's first inputs adds its bias.
      if (segment.task.bias != nullptr && (Job::kSeparate || s > 0 || job.block_in(first) == 0)) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (lane * 4 + i < job.columns(s)) y[i] += segment.weight * __half2float(segment.task.bias[lane * 4 + i]);
      }
    }
    if (size == 1) {
      job.write(from, row, lane, y);
    } else {
      store_to_rank(shared_of_rank(shared_address(inbox + (rank * rows + row) * 128 + lane * 4), 0), y,
                    shared_of_rank(arrived, 0));
    }
  }
  if (size == 1 || rank != 0) return;
  barrier_wait(arrived, 0);
  for (int row = warp; row < rows; row += kWarps) {
    float y[4] = {};
    for (int other = 0; other < size; ++other) {
      const float4 v = *reinterpret_cast<const float4*>(inbox + (other * rows + row) * 128 + lane * 4);
      y[0] += v.x;
      y[1] += v.y;
      y[2] += v.z;
      y[3] += v.w;
    }
    job.write(0, row, lane, y);
  }
}

}  // namespace pergola::cuda
