#include <cuda_fp16.h>

#include "backend/cuda/check.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/tile_search.h"

namespace pergola::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kTile = 256;
constexpr int kHalfTile = kTile / 2;
constexpr int kEvaluations = 65536 / kThreads;  ///< states of a thread
constexpr float kInfinity = __builtin_huge_valf();

/// Who evaluates what. A state is (branch << (16 - K)) | node; it comes from node (branch << (16 - 2K)) | group with
/// group = node >> K. Threads own groups (K <= 3), parts of a group's nodes (K = 4..7), or half a node's branches (K =
/// 8): neighbouring threads then read neighbouring costs or the same one.
template <int K>
struct Share {
  static constexpr int kNodes = 1 << (16 - K);
  static constexpr int kGroups = 1 << (16 - 2 * K);
  static constexpr int kOwnGroups = K <= 3 ? kGroups / kThreads : 1;
  static constexpr int kThreadsOfGroup = K <= 3 ? 1 : kThreads / kGroups;
  static constexpr int kOwnNodes = K <= 3 ? 1 << K : K <= 7 ? (1 << K) / kThreadsOfGroup : 1;
  static constexpr int kBranches = K <= 7 ? 1 << K : 128;
  static constexpr bool kPairs = K == 8;     ///< two threads share a node
  static constexpr bool kInShared = K >= 2;  ///< two rows of costs fit into shared memory
  static_assert(kOwnGroups * kOwnNodes * kBranches == kEvaluations);

  __device__ static int group(int i) {
    const int thread = static_cast<int>(threadIdx.x);
    return K <= 3 ? thread + kThreads * i : thread / kThreadsOfGroup;
  }
  __device__ static int first_node() {
    const int part = static_cast<int>(threadIdx.x) % kThreadsOfGroup;
    return K <= 3 ? 0 : kPairs ? part / 2 : part * kOwnNodes;
  }
  __device__ static int first_branch() { return kPairs ? static_cast<int>(threadIdx.x) % 2 * kBranches : 0; }
  __device__ static int node(int i, int j) { return (group(i) << K) + first_node() + j; }
};

/// The values of a thread's states, two to a register.
template <int K>
struct Values {
  __half2 pair[kEvaluations / 2];

  __device__ __forceinline__ void load(const std::uint16_t* table) {
    using S = Share<K>;
#pragma unroll
    for (int n = 0; n < kEvaluations; n += 2) {
      std::uint32_t both = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int m = n + half, j = m % S::kOwnNodes, b = m / S::kOwnNodes % S::kBranches,
                  i = m / S::kOwnNodes / S::kBranches;
        const int state = ((S::first_branch() + b) << (16 - K)) | S::node(i, j);
        both |= static_cast<std::uint32_t>(table[state]) << (16 * half);
      }
      pair[n / 2] = *reinterpret_cast<const __half2*>(&both);
    }
  }

  /// Keeps the compiler from holding the values as floats from step to step, for which there are not enough registers.
  __device__ __forceinline__ void forget_floats() {
#pragma unroll
    for (__half2& both : pair) asm("" : "+r"(reinterpret_cast<std::uint32_t&>(both)));
  }

  template <int n>
  __device__ __forceinline__ float at() const {
    return n % 2 == 0 ? __low2float(pair[n / 2]) : __high2float(pair[n / 2]);
  }
};

template <int n, int end, typename Use>
__device__ __forceinline__ void unrolled(const Use& use) {
  if constexpr (n < end) {
    use(std::integral_constant<int, n>{});
    unrolled<n + 1, end>(use);
  }
}

/// Costs `to` and `row` (may be null) after a position of weight `weight`, from costs `from` before it.
template <int K>
__device__ __forceinline__ void step(Values<K>& values, const float* from, float weight, float* to, float* row) {
  using S = Share<K>;
  values.forget_floats();
  unrolled<0, S::kOwnGroups>([&](auto index) {
    constexpr int i = decltype(index)::value;
    float best[S::kOwnNodes];
#pragma unroll
    for (int j = 0; j < S::kOwnNodes; ++j) best[j] = kInfinity;
    const float* in = from + S::first_branch() * S::kGroups + S::group(i);
    unrolled<0, S::kBranches>([&](auto branch) {
      constexpr int b = decltype(branch)::value;
      const float before = in[b * S::kGroups];
      unrolled<0, S::kOwnNodes>([&](auto own) {
        constexpr int j = decltype(own)::value;
        const float distance = values.template at<(i * S::kBranches + b) * S::kOwnNodes + j>() - weight;
        best[j] = fminf(best[j], fmaf(distance, distance, before));
      });
    });
    if constexpr (S::kPairs) best[0] = fminf(best[0], __shfl_xor_sync(0xFFFFFFFFu, best[0], 1));
    const int node = S::node(i, 0);
#pragma unroll
    for (int j = 0; j < S::kOwnNodes; ++j) {
      if (to != nullptr) to[node + j] = best[j];
      if (row != nullptr) row[node + j] = best[j];
    }
  });
}

struct Best {
  float cost;
  int index;
};

/// The lower cost, the lower index where they are equal.
__device__ __forceinline__ Best better(Best a, Best b) {
  return b.cost < a.cost || (b.cost == a.cost && b.index < a.index) ? b : a;
}

__device__ __forceinline__ Best best_of_warp(Best best) {
  for (int lane = 16; lane > 0; lane /= 2) {
    best =
        better(best, {__shfl_xor_sync(0xFFFFFFFFu, best.cost, lane), __shfl_xor_sync(0xFFFFFFFFu, best.index, lane)});
  }
  return best;
}

/// One warp: the state that reaches `node` most cheaply.
template <int K>
__device__ int best_state(const std::uint16_t* table, const float* from, int node, float weight) {
  Best best{kInfinity, node};
  for (int b = static_cast<int>(threadIdx.x) % 32; b < 1 << K; b += 32) {
    const int state = (b << (16 - K)) | node;
    const float distance = __half2float(__ushort_as_half(table[state])) - weight;
    best = better(best, {fmaf(distance, distance, from[state >> K]), state});
  }
  return best_of_warp(best).index;
}

template <int K>
class Tile {
 public:
  using S = Share<K>;

  __device__ Tile(const TileSearch& search, Values<K>& values, float* shared, float* weights)
      : search_(search),
        values_(values),
        shared_(shared),
        weights_(weights),
        rows_(search.rows + blockIdx.x * (std::size_t{257} << (16 - K))) {}

  __device__ void run(std::int64_t tile, Best* bests) {
    if (threadIdx.x < kTile) weights_[threadIdx.x] = search_.targets[tile * kTile + threadIdx.x];
    // Pass 1: from the middle, once around, with a free start. Half a tile later the start no longer matters.
    start([](int) { return 0.0f; });
    forward(kHalfTile, kHalfTile);
    const int last = best_node(bests);
    if (threadIdx.x < 32) {
      int node = last;
      for (int t = kHalfTile - 1; t >= 0; --t)
        node = best_state<K>(search_.values, row(kHalfTile + t), node, weights_[t]) >> K;
      if (threadIdx.x == 0) bests[0].index = node;
    }
    __syncthreads();
    const int seam = bests[0].index;
    // Pass 2: from the seam node around to the seam node.
    start([&](int node) { return node == seam ? 0.0f : kInfinity; });
    forward(0, 0);
    if (threadIdx.x < 32) {
      int node = seam;
      for (int t = kTile - 1; t >= 0; --t) {
        const int state = best_state<K>(search_.values, row(t), node, weights_[t]);
        if (threadIdx.x == 0) search_.states[tile * kTile + t] = static_cast<std::uint16_t>(state);
        node = state >> K;
      }
    }
    __syncthreads();
  }

 private:
  __device__ float* row(int index) const { return rows_ + static_cast<std::size_t>(index) * S::kNodes; }
  /// Costs before the i-th visited position.
  __device__ float* costs(int i) const { return S::kInShared ? shared_ + i % 2 * S::kNodes : row(i); }

  template <typename Cost>
  __device__ void start(const Cost& cost) {
    for (int node = static_cast<int>(threadIdx.x); node < S::kNodes; node += kThreads) {
      costs(0)[node] = cost(node);
      row(0)[node] = cost(node);
    }
    __syncthreads();
  }

  /// Visits all positions from `first` on, cyclically; the way back needs the costs from the `kept`-th on.
  __device__ void forward(int first, int kept) {
    for (int i = 0; i < kTile; ++i) {
      float* const keep = S::kInShared && i + 1 < kept ? nullptr : row(i + 1);
      step<K>(values_, costs(i), weights_[(first + i) % kTile], S::kInShared ? costs(i + 1) : nullptr, keep);
      __syncthreads();
    }
  }

  __device__ int best_node(Best* bests) const {
    Best best{kInfinity, 0};
    for (int node = static_cast<int>(threadIdx.x); node < S::kNodes; node += kThreads)
      best = better(best, {costs(kTile)[node], node});
    best = best_of_warp(best);
    if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;
    __syncthreads();
    best = best_of_warp(threadIdx.x % 32 < kWarps ? bests[threadIdx.x % 32] : Best{kInfinity, 65536});
    __syncthreads();
    return best.index;
  }

  const TileSearch& search_;
  Values<K>& values_;
  float* shared_;
  float* weights_;
  float* rows_;
};

template <int K>
__global__ void __launch_bounds__(kThreads) search_tiles(const __grid_constant__ TileSearch search) {
  extern __shared__ float shared[];
  __shared__ float weights[kTile];
  __shared__ Best bests[kWarps];
  Values<K> values;
  values.load(search.values);
  for (std::int64_t tile = blockIdx.x; tile < search.tiles; tile += gridDim.x)
    Tile<K>(search, values, shared, weights).run(tile, bests);
}

template <int K>
void start_search(cudaStream_t stream, int blocks, const TileSearch& search) {
  const std::size_t bytes = Share<K>::kInShared ? 2 * sizeof(float) * Share<K>::kNodes : 0;
  allow_shared_bytes(reinterpret_cast<const void*>(search_tiles<K>), bytes);
  search_tiles<K><<<static_cast<unsigned>(blocks), kThreads, bytes, stream>>>(search);
  check(cudaGetLastError(), "starting the search of tiles");
}

}  // namespace

void tile_search(cudaStream_t stream, int bits, int blocks, const TileSearch& search) {
  switch (bits) {
    case 1:
      return start_search<1>(stream, blocks, search);
    case 2:
      return start_search<2>(stream, blocks, search);
    case 3:
      return start_search<3>(stream, blocks, search);
    case 4:
      return start_search<4>(stream, blocks, search);
    case 5:
      return start_search<5>(stream, blocks, search);
    case 6:
      return start_search<6>(stream, blocks, search);
    case 7:
      return start_search<7>(stream, blocks, search);
    default:
      return start_search<8>(stream, blocks, search);
  }
}

}  // namespace pergola::cuda
