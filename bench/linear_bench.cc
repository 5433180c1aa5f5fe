// Speed of the CPU's linear kernels, each alone on one thread: `linear_bench --benchmark_filter='avx2/mul1/K4'`.
//
// Counters: Gw/s = 1e9 weights (not multiply-adds) a second, w/cycle = weights a core cycle, of_raw = packed bytes a
// second over a plain vector read of the same memory. "L2" works on blocks that stay in the second-level cache,
// "stream" on memory far larger than any cache.

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/packed_matrix.h"
#include "backend/cpu/weight_arena.h"

namespace pergola {
namespace {

constexpr std::int64_t kIn = 2048;
constexpr std::int64_t kStreamBytes = std::int64_t{512} << 20;

/// Processor time of this thread: other programs on the machine do not count.
double seconds_now() {
  timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Core cycles a second right now, from a chain of dependent multiplications of three cycles each (additions of
/// constants would not do: some processors join them).
double core_clock() {
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    constexpr int kSteps = 200000;
    std::uint64_t x = 3;
    const double start = seconds_now();
    for (int i = 0; i < kSteps / 4; ++i) {
#if defined(__x86_64__)
      asm volatile("imul %0,%0\n imul %0,%0\n imul %0,%0\n imul %0,%0\n" : "+r"(x));
#else
      for (int j = 0; j < 4; ++j) asm volatile("mul %0, %0, %0" : "+r"(x));
#endif
    }
    best = std::max(best, 3 * kSteps / (seconds_now() - start));
  }
  return best;
}

/// Random bytes, larger than any cache.
const std::byte* stream_memory() {
  static WeightArena arena;
  static const std::byte* memory = [] {
    std::byte* bytes = arena.allocate(kStreamBytes);
    std::mt19937_64 generator(3);
    for (std::int64_t at = 0; at < kStreamBytes; at += 8) {
      const std::uint64_t word = generator();
      std::memcpy(bytes + at, &word, 8);
    }
    return bytes;
  }();
  return memory;
}

/// Bytes a second of a plain read of the memory.
double raw_read_speed() {
  const auto* at = reinterpret_cast<const std::uint64_t*>(stream_memory());
  std::vector<double> speeds;
  for (int round = 0; round < 5; ++round) {
    const double start = seconds_now();
    std::uint64_t sums[8] = {};
    for (std::int64_t i = 0; i < kStreamBytes / 8; i += 8) {
      __builtin_prefetch(at + i + 512);
      for (int j = 0; j < 8; ++j) sums[j] ^= at[i + j];
    }
    benchmark::DoNotOptimize(sums);
    speeds.push_back(kStreamBytes / (seconds_now() - start));
  }
  std::sort(speeds.begin(), speeds.end());
  return speeds[speeds.size() / 2];
}

struct Work {
  std::byte* form;
  float* z;
  std::byte* scratch;
};

Work make_work(WeightArena& arena, const TrellisKernel& kernel, std::int64_t rows) {
  Work work{arena.allocate(kernel.form->bytes(kIn, rows)),
            reinterpret_cast<float*>(arena.allocate(rows * kBlockColumns * 4)),
            arena.allocate(kernel.scratch_bytes(kIn, rows))};
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(kIn);
  const std::vector<Half> suh(kIn, to_half(1.0f));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (float& value : x) value = normal(generator);
    kernel.form->prepare(x.data(), kIn, suh.data(), kIn, r, rows, work.form);
  }
  return work;
}

void multiply(benchmark::State& state, const KernelTable& table, Codebook codebook, int bits, std::int64_t rows,
              bool stream) {
  const TrellisKernel& kernel = table.kernel_for_rows(codebook, bits, rows);
  WeightArena arena;
  const Work work = make_work(arena, kernel, rows);
  const std::int64_t bytes = block_bytes(kIn, bits);
  const std::byte* memory = stream_memory();
  const std::int64_t blocks = stream ? kStreamBytes / bytes - 1 : std::max<std::int64_t>(1, (256 << 10) / bytes);
  const double raw = stream ? raw_read_speed() : 0;
  const double clock = core_clock();
  std::int64_t block = 0;
  for (auto _ : state) {
    kernel.multiply(memory + block * bytes, kIn, work.form, rows, work.z, work.scratch);
    benchmark::DoNotOptimize(work.z);
    if (++block == blocks) block = 0;
  }
  const double weights = static_cast<double>(state.iterations()) * kIn * kBlockColumns;
  using benchmark::Counter;
  state.counters["Gw/s"] = Counter(weights * 1e-9, Counter::kIsRate);
  state.counters["w/cycle"] = Counter(weights / clock, Counter::kIsRate);
  if (stream) state.counters["of_raw"] = Counter(weights * bits / 8 / raw, Counter::kIsRate);
  state.SetLabel(kernel.path);
}

void prepare(benchmark::State& state, const TrellisKernel& kernel) {
  WeightArena arena;
  std::byte* form = arena.allocate(kernel.form->bytes(kIn, 1));
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(kIn);
  for (float& value : x) value = normal(generator);
  const std::vector<Half> suh(kIn, to_half(0.5f));
  for (auto _ : state) {
    kernel.form->prepare(x.data(), kIn, suh.data(), kIn, 0, 1, form);
    benchmark::ClobberMemory();
  }
  state.SetLabel(kernel.form->name);
}

/// Repacking of one block of 128 columns out of a wide matrix.
void pack(benchmark::State& state, int bits) {
  constexpr std::int64_t kOut = 2048;
  const std::int64_t bytes = block_bytes(kIn, bits);
  const std::span<const std::byte> trellis(stream_memory(), static_cast<std::size_t>(bytes * (kOut / kBlockColumns)));
  const TrellisView view{kIn, kOut, bits, Codebook::mul1, trellis, {}, {}};
  WeightArena arena;
  std::byte* out = arena.allocate(static_cast<std::int64_t>(trellis.size()));
  std::int64_t block = 0;
  for (auto _ : state) {
    pack_block(view, block, out + block * bytes);
    benchmark::ClobberMemory();
    if (++block == kOut / kBlockColumns) block = 0;
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

void finish(benchmark::State& state, FinishBlock function) {
  std::vector<float> z(128, 1.0f), out(128);
  const std::vector<Half> svh(128, to_half(0.5f));
  for (auto _ : state) {
    function(z.data(), svh.data(), nullptr, 128, out.data());
    benchmark::ClobberMemory();
    z[0] = 1.0f;
  }
}

void dense(benchmark::State& state, DenseMultiply function, std::int64_t rows, std::int64_t element) {
  constexpr std::int64_t columns = 32;
  std::vector<float> x(static_cast<std::size_t>(rows * kIn), 0.5f), out(static_cast<std::size_t>(rows * columns));
  const std::vector<std::byte> w(static_cast<std::size_t>(kIn * columns * element));
  for (auto _ : state) {
    function(w.data(), kIn, columns, x.data(), kIn, rows, out.data(), columns);
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  state.counters["Gmac/s"] =
      Counter(static_cast<double>(state.iterations() * rows * columns * kIn) * 1e-9, Counter::kIsRate);
}

void register_multiplies(const KernelTable& table, const std::string& isa) {
  for (const Codebook codebook : {Codebook::mul1, Codebook::mcg, Codebook::three_inst}) {
    for (int bits = 1; bits <= kBitWidths; ++bits) {
      const std::string name = isa + "/" + std::string(name_of(codebook)) + "/K" + std::to_string(bits) + "/rows:";
      for (const std::int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048}) {
        const auto add = [&](const char* where, bool stream) {
          benchmark::RegisterBenchmark((name + std::to_string(rows) + "/" + where).c_str(), multiply, table, codebook,
                                       bits, rows, stream);
        };
        add("L2", false);
        if (rows <= 4) add("stream", true);
      }
    }
  }
}

void register_all() {
  for (int bits = 1; bits <= kBitWidths; ++bits) {
    benchmark::RegisterBenchmark(("pack/K" + std::to_string(bits)).c_str(), pack, bits);
  }
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (isa > cpu_features().best) break;
    static std::vector<KernelTable> tables;
    tables.reserve(4);
    tables.push_back(make_kernel_table(cpu_features(), isa, Precision::standard));
    const KernelTable& table = tables.back();
    const std::string name(name_of(isa));
    register_multiplies(table, name);
    for (const Codebook codebook : {Codebook::mul1, Codebook::mcg}) {
      benchmark::RegisterBenchmark((name + "/prepare/" + std::string(name_of(codebook))).c_str(), prepare,
                                   table.kernel(codebook, 4, Regime::one));
    }
    benchmark::RegisterBenchmark((name + "/finish").c_str(), finish, table.finish);
    for (const std::int64_t rows : {1, 16, 256}) {
      const std::string suffix = "/rows:" + std::to_string(rows);
      benchmark::RegisterBenchmark((name + "/dense/f32" + suffix).c_str(), dense, table.dense_f32, rows, 4);
      benchmark::RegisterBenchmark((name + "/dense/bf16" + suffix).c_str(), dense, table.dense_bf16, rows, 2);
    }
  }
}

}  // namespace
}  // namespace pergola

int main(int argc, char** argv) {
  pergola::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
