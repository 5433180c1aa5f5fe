// What the CUDA benchmarks share: random trellis layers, an fp64 reference built from the format's definition, and
// timing by graph replay over rotating weights, so that neither L2 nor launch gaps flatter a kernel.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "backend/cuda/packed_gemm.h"
#include "backend/cuda/repack.h"
#include "base/half.h"
#include "trellis/codebook.h"

namespace pergola::cuda::bench {

inline void ok(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s (%s)\n", cudaGetErrorString(error), what);
  std::exit(1);
}
#define PERGOLA_OK(call) ::pergola::cuda::bench::ok(call, #call)

inline __host__ __device__ std::uint32_t scramble(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

static __global__ void fill_random(std::uint32_t* to, std::size_t count, std::uint32_t seed) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    to[i] = scramble(static_cast<std::uint32_t>(i) * 2654435761u ^ scramble(seed));
  }
}

/// z[m][column] of one column: table lookup of every state, fp64 sums.
static __global__ void reference_product(const std::uint32_t* disk, const float* table, const double* xh, double* z,
                                         int k, int n, int bits, int rows) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * 128;
  if (column >= n) return;
  double sum[8] = {};
  for (int i = first; i < first + 128; ++i) {
    const int r = i & 15, c = column & 15;
    const int t = 32 * (c & 7) + 8 * ((r >> 1) & 3) + 4 * (c >> 3) + 2 * (r >> 3) + (r & 1);
    const std::uint32_t* words = disk + (static_cast<std::size_t>(i >> 4) * (n / 16) + (column >> 4)) * 8 * bits;
    const int count = 8 * bits, end = (t + 1) * bits + 256 * bits, i1 = (end - 1) >> 5, i0 = (end - 16) >> 5,
              shift = 32 * (i1 + 1) - end;
    const std::uint64_t both = static_cast<std::uint64_t>(words[i0 % count]) << 32 | words[i1 % count];
    const double w = table[(both >> shift) & 0xFFFF];
    for (int m = 0; m < rows; ++m) sum[m] += w * xh[static_cast<std::size_t>(m) * k + i];
  }
  for (int m = 0; m < rows; ++m) atomicAdd(z + static_cast<std::size_t>(m) * n + column, sum[m]);
}

/// One allocation that every case carves its arrays from: allocating gigabytes anew for each takes seconds on some
/// machines.
struct Arena {
  std::byte* base = nullptr;
  std::size_t size = 0, used = 0;

  void* take(std::size_t bytes) {
    if (base == nullptr) PERGOLA_OK(cudaMalloc(reinterpret_cast<void**>(&base), size = std::size_t{6} << 30));
    used = (used + 255) / 256 * 256;
    if (used + bytes > size) ok(cudaErrorMemoryAllocation, "arena");
    void* memory = base + used;
    used += bytes;
    return memory;
  }
};
inline Arena arena;

template <typename T>
T* device_array(std::size_t count) {
  void* memory = arena.take(std::max<std::size_t>(count * sizeof(T), 16));
  PERGOLA_OK(cudaMemset(memory, 0xFF, std::max<std::size_t>(count * sizeof(T), 16)));  // NaN: nothing may rely on zeros
  return static_cast<T*>(memory);
}

template <typename T>
T* upload(const std::vector<T>& values) {
  T* memory = device_array<T>(values.size());
  PERGOLA_OK(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

inline float half_value(std::uint16_t bits) {
  return to_float(Half{bits});
}

/// A trellis matrix with random words and `copies` further random ones of the same shape to rotate over.
struct Layer {
  int k, n, bits, rows;
  Codebook codebook;
  std::uint32_t* disk = nullptr;
  std::vector<std::uint32_t*> packed;
  std::vector<std::uint16_t> host_x, host_suh, host_svh;
  __half *x, *suh, *svh;

  Layer(int k_, int n_, int bits_, Codebook codebook_, int rows_, std::size_t rotate_bytes)
      : k(k_), n(n_), bits(bits_), rows(rows_), codebook(codebook_) {
    const std::size_t words = static_cast<std::size_t>(k) * n * bits / 32;
    disk = device_array<std::uint32_t>(words);
    fill_random<<<1024, 256>>>(disk, words, 1234u + bits);
    const int copies = static_cast<int>(std::max<std::size_t>(1, rotate_bytes / (words * 4) + (rotate_bytes > 0)));
    for (int i = 0; i < copies; ++i) {
      packed.push_back(device_array<std::uint32_t>(words));
      if (i == 0) {
        launch_repack(nullptr, disk, packed[0], k, n, bits, 0, k / 64);
      } else {
        fill_random<<<1024, 256>>>(packed[i], words, 77u + i);
      }
    }
    std::uint32_t seed = 4321u + k + n;
    const auto uniform = [&] { return (scramble(seed = seed * 1664525u + 1013904223u) >> 8) * (1.0 / 16777216.0); };
    const auto normal = [&] { return std::sqrt(-2 * std::log(uniform() + 1e-9)) * std::cos(6.283185307 * uniform()); };
    host_x.resize(static_cast<std::size_t>(rows) * k);
    host_suh.resize(k);
    host_svh.resize(n);
    for (auto& v : host_x) v = to_half(static_cast<float>(normal())).bits;
    for (auto& v : host_suh) v = to_half(static_cast<float>((uniform() < 0.5 ? -1 : 1) * (0.5 + uniform()))).bits;
    for (auto& v : host_svh)
      v = to_half(static_cast<float>((uniform() < 0.5 ? -1 : 1) * (0.5 + uniform()) / std::sqrt(k))).bits;
    x = reinterpret_cast<__half*>(upload(host_x));
    suh = reinterpret_cast<__half*>(upload(host_suh));
    svh = reinterpret_cast<__half*>(upload(host_svh));
    PERGOLA_OK(cudaDeviceSynchronize());
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
};

inline void transform128(double* v) {
  for (int step = 1; step < 128; step <<= 1)
    for (int i = 0; i < 128; ++i)
      if ((i & step) == 0) {
        const double a = v[i], b = v[i + step];
        v[i] = a + b;
        v[i + step] = a - b;
      }
  for (int i = 0; i < 128; ++i) v[i] /= std::sqrt(128.0);
}

/// The layer's outputs for its first `rows` rows, in fp64 from binary16 inputs.
inline std::vector<double> reference(const Layer& layer, int rows) {
  std::vector<float> table(65536);
  for (int i = 0; i < 65536; ++i) table[i] = to_float(decode_state(layer.codebook, static_cast<std::uint16_t>(i)));
  float* device_table = upload(table);
  std::vector<double> xh(static_cast<std::size_t>(rows) * layer.k);
  for (int m = 0; m < rows; ++m)
    for (int b = 0; b < layer.k; b += 128) {
      double* v = &xh[static_cast<std::size_t>(m) * layer.k + b];
      for (int i = 0; i < 128; ++i)
        v[i] = double{half_value(layer.host_x[static_cast<std::size_t>(m) * layer.k + b + i])} *
               half_value(layer.host_suh[b + i]);
      transform128(v);
    }
  double* device_xh = upload(xh);
  double* z = device_array<double>(static_cast<std::size_t>(rows) * layer.n);
  PERGOLA_OK(cudaMemset(z, 0, static_cast<std::size_t>(rows) * layer.n * 8));
  for (int m = 0; m < rows; m += 8)
    reference_product<<<dim3((layer.n + 127) / 128, layer.k / 128), 128>>>(
        layer.disk, device_table, device_xh + static_cast<std::size_t>(m) * layer.k,
        z + static_cast<std::size_t>(m) * layer.n, layer.k, layer.n, layer.bits, std::min(8, rows - m));
  std::vector<double> y(static_cast<std::size_t>(rows) * layer.n);
  PERGOLA_OK(cudaMemcpy(y.data(), z, y.size() * 8, cudaMemcpyDeviceToHost));
  for (int m = 0; m < rows; ++m)
    for (int b = 0; b < layer.n; b += 128) {
      double* v = &y[static_cast<std::size_t>(m) * layer.n + b];
      transform128(v);
      for (int i = 0; i < 128; ++i) v[i] *= half_value(layer.host_svh[b + i]);
    }
  return y;
}

/// ||out - reference|| / ||reference||; not-a-number where something was not written.
inline double relative_error(const std::vector<float>& out, const std::vector<double>& expected) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (out[i] - expected[i]) * (out[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

/// Median microseconds of a graph that `record` captures.
inline double replay_microseconds(cudaStream_t stream, const std::function<void()>& record, int repeats = 15) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  PERGOLA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  record();
  PERGOLA_OK(cudaStreamEndCapture(stream, &graph));
  PERGOLA_OK(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t start, stop;
  PERGOLA_OK(cudaEventCreate(&start));
  PERGOLA_OK(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < repeats + 2; ++i) {
    PERGOLA_OK(cudaEventRecord(start, stream));
    PERGOLA_OK(cudaGraphLaunch(executable, stream));
    PERGOLA_OK(cudaEventRecord(stop, stream));
    PERGOLA_OK(cudaEventSynchronize(stop));
    float milliseconds;
    PERGOLA_OK(cudaEventElapsedTime(&milliseconds, start, stop));
    if (i >= 2) times.push_back(milliseconds * 1e3f);
  }
  std::sort(times.begin(), times.end());
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return times[times.size() / 2];
}

}  // namespace pergola::cuda::bench
