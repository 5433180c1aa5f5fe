// What a thread block of the GEMV kernel has to do: which job, of which matrices, where its inputs are and its outputs
// go, for every kind of launch.
#pragma once

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/dot.cuh"
#include "backend/cuda/gemv.h"

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
  expert = __ldcg(moe.pick_expert + pick);
  const bool same = thread < picks && __ldcg(moe.pick_expert + thread) == expert;
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

/// Which job a thread block has.
struct Place {
  int which = 0;      ///< linears: the member; gate_up: 0 gate, 1 up
  int group = 0;      ///< of 128 outputs; the first one of down_parts
  int pick = -1;      ///< gate_up, down_parts; -1: the shared expert
  int first_row = 0;  ///< of the shared expert; down: the row
  int expert = 0;
  int count = 1;    ///< picks that the job takes
  int several = 0;  ///< whether those are listed

  __device__ __forceinline__ Place(const GemvLaunch& p, int job) {
    if (p.kind == GemvKind::linears) {
      while (which + 1 < p.linears.count && p.linears.members[which + 1].first_job <= job) ++which;
      group = job - p.linears.members[which].first_job;
      return;
    }
    const MoeParams& moe = p.moe.moe;
    const int picks = moe.rows * moe.top_k;
    expert = moe.experts;
    if (p.kind == GemvKind::down) {
      first_row = job / moe.groups_hidden;
      group = job - first_row * moe.groups_hidden;
    } else if (p.kind == GemvKind::gate_up) {
      int number = job / (2 * moe.groups_width), rest = job - number * 2 * moe.groups_width, groups = moe.groups_width;
      if (number < picks) {
        pick = number;
      } else {
        groups = moe.groups_shared;
        number = (job - picks * 2 * moe.groups_width) / (2 * groups);
        rest = job - picks * 2 * moe.groups_width - number * 2 * groups;
        first_row = number * p.moe.shared_chunk;
      }
      which = rest >= groups ? 1 : 0;
      group = rest - which * groups;
    } else {
      const int parts = (moe.groups_hidden + p.moe.groups - 1) / p.moe.groups, number = job / parts;
      group = (job - number * parts) * p.moe.groups;
      if (number < picks) {
        pick = number;
      } else {
        first_row = (number - picks) * p.moe.shared_chunk;
      }
    }
  }
};

/// Finds the pick's expert, all threads; whether there is something to do.
__device__ __forceinline__ bool gather(const GemvLaunch& p, Place& at, int* list) {
  if (p.kind == GemvKind::linears || at.pick < 0) return true;
  at.several = p.moe.share;
  if (p.moe.share != 0) return gather_picks(p.moe.moe, at.pick, p.moe.shared_chunk, at.expert, at.count, list);
  at.expert = __ldcg(p.moe.moe.pick_expert + at.pick);
  return true;
}

/// The job at a place.
struct Job {
  const GemvLaunch& p;
  const Place at;
  const int* const list;  ///< of the job's picks, in shared memory
  const GemvKind kind;

  __device__ __forceinline__ Job(const GemvLaunch& launch, const Place& place, const int* picks)
      : p(launch), at(place), list(picks), kind(launch.kind) {}
  /// Whether segments are other outputs of the same inputs, not added.
  __device__ __forceinline__ bool is_separate() const { return kind == GemvKind::down_parts; }
  __device__ __forceinline__ int x_row(int row) const {
    if (at.several == 0) return row;
    return kind == GemvKind::gate_up ? list[row] / p.moe.moe.top_k : list[row];
  }
  /// The thread blocks of an expert together bring its other matrix into the L2 cache, for the launch after this one.
  __device__ __forceinline__ void look_ahead() const {
    if (kind != GemvKind::gate_up) return;
    const MoeParams& moe = p.moe.moe;
    const ExpertMatrix& m = moe.matrices[at.expert].down;
    const int groups = at.pick >= 0 ? moe.groups_width : moe.groups_shared,
              units = at.pick >= 0 ? moe.units_width : moe.units_shared, size = cluster_size();
    const int all = 2 * groups * size, index = (at.which * groups + at.group) * size + cluster_rank();
    const std::int64_t pieces = static_cast<std::int64_t>(units) * moe.groups_hidden * p.moe.bits[m.kind];  // of 1 kB
    const std::int64_t from = pieces * index / all, to = pieces * (index + 1) / all;
    if (at.first_row == 0 && to > from)
      prefetch_to_l2(m.weights + from * 1024, static_cast<std::uint32_t>(to - from) * 1024);
  }
  __device__ __forceinline__ int rows() const {
    if (kind == GemvKind::linears) return p.linears.x.rows;
    if (kind == GemvKind::down) return 1;
    return at.pick >= 0 ? at.count : min(p.moe.shared_chunk, p.moe.moe.rows - at.first_row);
  }
  __device__ __forceinline__ int width() const { return at.pick >= 0 ? p.moe.moe.width : p.moe.moe.shared_width; }
  /// Blocks of inputs of one matrix of down_parts.
  __device__ __forceinline__ int part_inputs() const {
    return (at.pick >= 0 ? p.moe.moe.units_width : p.moe.moe.units_shared) / 2;
  }
  __device__ __forceinline__ int blocks() const {
    return is_separate() ? min(p.moe.groups, p.moe.moe.groups_hidden - at.group) * part_inputs() : p.common.blocks;
  }
  __device__ __forceinline__ int columns(int segment) const {
    if (kind == GemvKind::linears) return p.linears.members[at.which].columns - at.group * 128;
    if (kind == GemvKind::gate_up) return width() - at.group * 128;
    return p.moe.moe.hidden - (at.group + (is_separate() ? segment : 0)) * 128;
  }
  __device__ __forceinline__ int segment_of(int block) const {
    if (kind == GemvKind::down) return min(block / (p.moe.moe.units_width / 2), p.moe.moe.top_k);
    return is_separate() ? block / part_inputs() : 0;
  }
  __device__ __forceinline__ int segment_begin(int segment) const {
    if (kind == GemvKind::down) return segment * (p.moe.moe.units_width / 2);
    return is_separate() ? segment * part_inputs() : 0;
  }
  /// One block past the segment's last, or further.
  __device__ __forceinline__ int segment_end(int segment) const {
    if (kind == GemvKind::down && segment == p.moe.moe.top_k) return p.common.blocks;
    return kind == GemvKind::down || is_separate() ? segment_begin(segment + 1) : p.common.blocks;
  }
  __device__ __forceinline__ void resolve(int segment, GemvSegment& to) const {
    if (kind == GemvKind::linears) {
      const GemvLinears& l = p.linears;
      const GemvMember& m = l.members[at.which];
      set_matrix(to, m.weights, m.suh, m.svh, m.bias, m.bits, p.common.blocks, at.group);
      to.task.x = l.x.data;
      to.task.x_stride = l.x.stride;
      to.task.x_width = l.x.columns;
      return;
    }
    const MoeParams& moe = p.moe.moe;
    const std::int64_t picks = static_cast<std::int64_t>(moe.rows) * moe.top_k;
    if (kind == GemvKind::gate_up) {
      const ExpertMatrix& m = at.which == 0 ? moe.matrices[at.expert].gate : moe.matrices[at.expert].up;
      set_matrix(to, m.weights, m.suh, m.svh, m.bias, p.moe.bits[m.kind], p.common.blocks, at.group);
      const std::int64_t offset = (at.pick < 0        ? at.first_row
                                   : p.moe.share != 0 ? 0
                                                      : at.pick / moe.top_k) *
                                  moe.x.stride;
      to.task.x = moe.x.f32 != 0 ? static_cast<const void*>(static_cast<const float*>(moe.x.data) + offset)
                                 : static_cast<const void*>(static_cast<const __half*>(moe.x.data) + offset);
      to.task.x_stride = moe.x.stride;
      to.task.x_width = moe.hidden;
      return;
    }
    // Inputs of down: one row of a pick or of the shared expert, or with down_parts any row of theirs.
    const bool separate = is_separate(), shared = separate ? at.pick < 0 : segment == moe.top_k;
    const int own = at.first_row * moe.top_k + segment;
    const ExpertMatrix& m = moe.matrices[separate ? at.expert
                                         : shared ? moe.experts
                                                  : __ldcg(moe.pick_expert + own)]
                                .down;
    set_matrix(to, m.weights, m.suh, m.svh, m.bias, p.moe.bits[m.kind],
               (shared ? moe.units_shared : moe.units_width) / 2, at.group + (separate ? segment : 0));
    const std::int64_t offset = shared ? picks * moe.width + static_cast<std::int64_t>(at.first_row) * moe.shared_width
                                : separate ? 0
                                           : static_cast<std::int64_t>(own) * moe.width;
    to.task.x = moe.up + offset;
    to.task.gate = moe.gate + offset;
    to.task.x_width = shared ? moe.shared_width : moe.width;
    to.task.x_stride = to.task.x_width;
    if (separate) return;
    if (!shared) {
      to.weight = __ldcg(moe.pick_weight + own);
    } else if (moe.has_shared_gate != 0) {
      const float logit =
          __ldcg(moe.logits + static_cast<std::int64_t>(at.first_row) * moe.logits_stride + moe.experts);
      to.weight = 1.0f / (1.0f + __expf(-logit));
    }
  }
  __device__ __forceinline__ void write(int segment, int row, int lane, const float (&y)[4]) const {
    int column = at.group * 128 + lane * 4, columns;
    std::int64_t start;
    void* out;
    bool f32 = true;
    if (kind == GemvKind::linears) {
      const GemvMember& m = p.linears.members[at.which];
      out = m.out;
      f32 = m.out_f32 != 0;
      start = row * m.out_stride;
      columns = m.columns;
    } else {
      const MoeParams& moe = p.moe.moe;
      const std::int64_t picks = static_cast<std::int64_t>(moe.rows) * moe.top_k;
      const std::int64_t own = at.several != 0 ? list[row] : at.pick;
      columns = moe.hidden;
      if (kind == GemvKind::down) {
        out = moe.out.data;
        f32 = moe.out.f32 != 0;
        start = at.first_row * moe.out.stride;
      } else if (kind == GemvKind::gate_up) {
        out = at.which == 0 ? moe.gate : moe.up;
        columns = width();
        start = at.pick >= 0 ? own * moe.width : picks * moe.width + (at.first_row + row) * moe.shared_width;
      } else {
        out = moe.down;
        column += segment * 128;
        start = (at.pick >= 0 ? own : picks + at.first_row + row) * moe.hidden;
      }
    }
    store_four(out, f32, start + column, column, columns, y);
  }
  /// Dense members: a warp a column of this thread block's share of the job.
  template <int kMostDenseRows>
  __device__ __forceinline__ bool dense() const {
    if (kind != GemvKind::linears) return false;
    const GemvLinears& l = p.linears;
    const GemvMember& m = l.members[at.which];
    if (m.bits != 0) return false;
    const int lane = threadIdx.x & 31, size = cluster_size(), k = l.x.columns;
    const int here = min(128, m.columns - at.group * 128), first = at.group * 128 + cluster_rank() * here / size,
              last = at.group * 128 + (cluster_rank() + 1) * here / size;
    const bool is_aligned = rows_are_aligned(l.x.data, l.x.stride);
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
          if (r < l.x.rows) dot_stretch(weights, l.x.data, l.x.f32 != 0, r * l.x.stride, from, k, is_aligned, sum[r]);
        }
      }
#pragma unroll
      for (int r = 0; r < kMostDenseRows; ++r) {
        if (r >= l.x.rows) continue;
        const float y = sum_of_warp(sum[r]) + (m.bias != nullptr ? __half2float(m.bias[column]) : 0.0f);
        if (lane != 0) continue;
        const std::int64_t offset = r * m.out_stride + column;
        if (m.out_f32 != 0) {
          static_cast<float*>(m.out)[offset] = y;
        } else {
          static_cast<__half*>(m.out)[offset] = __float2half_rn(y);
        }
      }
    }
    if (!waited) wait_for_previous_kernel();
    return true;
  }
};

}  // namespace gemv_detail

}  // namespace pergola::cuda
