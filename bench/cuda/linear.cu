// Correctness and speed of trellis linears on the device, kernel by kernel.
#include <chrono>
#include <cstring>
#include <string>

#include "backend/cuda/gemv.h"
#include "backend/cuda/regime.h"
#include "harness.cuh"

using namespace pergola;
using namespace pergola::cuda;
using namespace pergola::cuda::bench;

namespace {

LaunchContext context;
PackedGemmScratch scratch;

struct Case {
  int k, n, bits;
  Codebook codebook;
  Operand operand;
  int blocks, rows;
  bool time;
};

const char* name(Operand operand) {
  return operand == Operand::pairs ? "pairs" : operand == Operand::packed ? "packed" : "bytes";
}

bool run(const Case& c, std::size_t rotate) {
  const int capacity = rows_of(c.operand, c.blocks);
  const std::size_t mark = arena.used;
  const auto begin = std::chrono::steady_clock::now();
  const auto lap = [&](const char* stage) {
    PERGOLA_OK(cudaDeviceSynchronize());
    if (std::getenv("LAPS") != nullptr)
      std::printf("    [%s %.3f s]\n", stage,
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  };
  Layer layer(c.k, c.n, c.bits, c.codebook, c.rows, c.time ? rotate : 0);
  lap("layer");
  float* out = device_array<float>(static_cast<std::size_t>(c.rows) * c.n);
  auto* activations =
      device_array<std::byte>(static_cast<std::size_t>(c.k / 64) * activation_bytes(c.operand, c.blocks));
  float* scales = device_array<float>(2 * capacity);
  const auto tasks_for = [&](int copy) {
    TaskList list;
    list.count = 1;
    list.max_rows = c.rows;
    TrellisTask& task = list.tasks[0];
    task.weights = reinterpret_cast<const std::byte*>(layer.packed[copy]);
    task.suh = layer.suh;
    task.svh = layer.svh;
    task.x = layer.x;
    task.x_stride = c.k;
    task.x_width = c.k;
    task.activations = activations;
    task.row_scales = scales;
    task.out = out;
    task.out_stride = c.n;
    task.out_f32 = 1;
    task.columns = c.n;
    task.rows = c.rows;
    task.k_units = c.k / 64;
    task.column_groups = c.n / 128;
    return list;
  };
  const TrellisKind kind{c.codebook, c.bits};
  if (!packed_gemm_fits(context.shared_bytes, kind, c.operand, c.blocks)) {
    std::printf("  K%d %s %s x%d does not fit\n", c.bits, std::string(name_of(c.codebook)).c_str(), name(c.operand),
                c.blocks);
    arena.used = mark;
    return true;
  }
  const bool can_fuse = packed_gemm_fits(context.shared_bytes, kind, c.operand, c.blocks, 1, c.rows, c.k);
  enum class How { bare, prepared, fused };
  const auto step = [&](int copy, How how) {
    const TaskList list = tasks_for(copy);
    if (how == How::prepared) launch_prepare(context, list, c.operand, c.blocks, c.k);
    launch_packed_gemm(context, list, kind, c.operand, c.blocks, scratch, how == How::fused ? 1 : 0, c.k);
  };
  std::vector<float> host(static_cast<std::size_t>(c.rows) * c.n), again(host.size());
  double worst = 0;
  bool equal = true;
  const auto expected = reference(layer, c.rows);
  lap("reference");
  for (int i = 0; i < 3; ++i) {  // twice in two launches, then in one if there is such a kernel: all to the same bits
    PERGOLA_OK(cudaMemset(out, 0xFF, host.size() * 4));
    step(0, i == 2 && can_fuse ? How::fused : How::prepared);
    PERGOLA_OK(cudaStreamSynchronize(context.stream));
    PERGOLA_OK(cudaMemcpy(again.data(), out, host.size() * 4, cudaMemcpyDeviceToHost));
    if (i > 0) equal = equal && std::memcmp(host.data(), again.data(), host.size() * 4) == 0;
    host = again;
    const double error = relative_error(host, expected);
    worst = std::isfinite(error) ? std::max(worst, error) : 1e9;
  }
  lap("runs");
  const bool good = worst < 1e-3 && equal;
  std::printf("%s%6dx%-6d K%d %-5s %-6s x%d rows %2d  err %.1e%s", good ? "  " : "! ", c.k, c.n, c.bits,
              std::string(name_of(c.codebook)).c_str(), name(c.operand), c.blocks, c.rows, worst,
              equal ? "" : " NOT REPEATABLE");
  if (c.time && good) {
    const int copies = static_cast<int>(layer.packed.size());
    const double bytes = static_cast<double>(c.k) * c.n * c.bits / 8;
    const auto time = [&](How how) {
      return replay_microseconds(context.stream,
                                 [&] {
                                   for (int i = 0; i < copies; ++i) step(i, how);
                                 }) /
             copies;
    };
    const double bare = time(How::bare), prepared = time(How::prepared), fused = can_fuse ? time(How::fused) : 0;
    context.dependent_launch = false;
    const double plain = time(can_fuse ? How::fused : How::prepared);
    std::printf("  bare %6.2f prepared %6.2f fused %6.2f (without PDL %6.2f) us %4.0f GB/s", bare, prepared, fused,
                plain, bytes / (can_fuse ? fused : prepared) / 1e3);
    context.dependent_launch = true;
  }
  std::printf("\n");
  std::fflush(stdout);
  arena.used = mark;
  return good;
}

/// The GEMV kernel: one launch, clusters.
bool run_gemv(int k, int n, int bits, Codebook codebook, int rows, std::size_t rotate, int cluster = 0) {
  const std::size_t mark = arena.used;
  const Layer layer(k, n, bits, codebook, rows, rotate);
  float* out = device_array<float>(static_cast<std::size_t>(rows) * n);
  const Family family = family_of(codebook);
  const GemvWork work{n / 128, k / 128, k / 128, bits, rows, family};
  const GemvPlan plan = cluster > 0 ? fit_gemv(work, cluster, context.shared_bytes)
                                    : plan_gemv(work, context.multiprocessors, context.shared_bytes);
  if (plan.slots == 0) {
    std::printf("  gemv %6dx%-6d K%d %s rows %d does not fit\n", k, n, bits, std::string(name_of(codebook)).c_str(),
                rows);
    arena.used = mark;
    return true;
  }
  const auto step = [&](int copy) {
    GemvLinears linears;
    linears.common.constants = constants_of(codebook);
    linears.common.blocks = k / 128;
    linears.common.block_bytes = 2048 * bits;
    linears.common.segments = 1;
    linears.x = {layer.x, k, rows, k, 0};
    linears.count = 1;
    linears.jobs = n / 128;
    linears.members[0] = {
        reinterpret_cast<const std::byte*>(layer.packed[copy]), layer.suh, layer.svh, nullptr, out, n, 1, n, 0, bits};
    launch_gemv(context, linears, family, plan);
  };
  std::vector<float> host(static_cast<std::size_t>(rows) * n), again(host.size());
  const auto expected = reference(layer, rows);
  double worst = 0;
  bool equal = true;
  for (int i = 0; i < 3; ++i) {
    PERGOLA_OK(cudaMemset(out, 0xFF, host.size() * 4));
    step(0);
    PERGOLA_OK(cudaStreamSynchronize(context.stream));
    PERGOLA_OK(cudaMemcpy(again.data(), out, host.size() * 4, cudaMemcpyDeviceToHost));
    if (i > 0) equal = equal && std::memcmp(host.data(), again.data(), host.size() * 4) == 0;
    host = again;
    const double error = relative_error(host, expected);
    worst = std::isfinite(error) ? std::max(worst, error) : 1e9;
  }
  const bool good = worst < 1e-3 && equal;
  std::printf("%sgemv %6dx%-6d K%d %-5s rows %2d cluster %d slots %d  err %.1e%s", good ? "  " : "! ", k, n, bits,
              std::string(name_of(codebook)).c_str(), rows, plan.cluster, plan.slots, worst,
              equal ? "" : " NOT REPEATABLE");
  if (rotate > 0 && good) {
    const int copies = static_cast<int>(layer.packed.size());
    const double us = replay_microseconds(context.stream,
                                          [&] {
                                            for (int i = 0; i < copies; ++i) step(i);
                                          }) /
                      copies;
    std::printf("  %6.2f us %4.0f GB/s", us, static_cast<double>(k) * n * bits / 8 / us / 1e3);
  }
  std::printf("\n");
  std::fflush(stdout);
  arena.used = mark;
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaDeviceProp properties;
  PERGOLA_OK(cudaGetDeviceProperties(&properties, 0));
  PERGOLA_OK(cudaStreamCreate(&context.stream));
  context.multiprocessors = properties.multiProcessorCount;
  context.shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin);
  context.dependent_launch = properties.major >= 9;
  scratch.partials = device_array<float>(PackedGemmScratch::kPartialFloats);
  scratch.arrivals = device_array<unsigned>(PackedGemmScratch::kMaxBlocks);
  PERGOLA_OK(cudaMemset(scratch.arrivals, 0, PackedGemmScratch::kMaxBlocks * sizeof(unsigned)));
  std::printf("%s, %d multiprocessors\n", properties.name, context.multiprocessors);

  int bad = 0;
  const auto kernels = [](Codebook codebook) {
    std::vector<std::pair<Operand, int>> list;
    if (codebook == Codebook::mul1)
      list = {{Operand::bytes, 1}, {Operand::packed, 1}, {Operand::packed, 2}, {Operand::packed, 4}};
    else
      list = {{Operand::pairs, 1}, {Operand::packed, 2}, {Operand::packed, 4}};
    return list;
  };
  if (what == "all" || what == "check") {
    for (const Codebook codebook : {Codebook::three_inst, Codebook::mcg, Codebook::mul1})
      for (int bits = 1; bits <= 8; ++bits)
        for (const auto& [operand, blocks] : kernels(codebook)) {
          const int most = rows_of(operand, blocks);
          bad += !run({384, 640, bits, codebook, operand, blocks, most, false}, 0);
          bad += !run({128, 128, bits, codebook, operand, blocks, 1, false}, 0);
          bad += !run({2048, 2048, bits, codebook, operand, blocks, most - 1, false}, 0);
        }
    std::printf("check: %d bad\n", bad);
  }
  if (what == "all" || what == "check" || what == "gemv") {
    int wrong = 0;
    for (const Codebook codebook : {Codebook::three_inst, Codebook::mcg, Codebook::mul1})
      for (int bits = 1; bits <= 8; ++bits)
        for (const int rows : {1, 3, gemv_most_rows(family_of(codebook))}) {
          wrong += !run_gemv(384, 640, bits, codebook, rows, 0);
          wrong += !run_gemv(128, 128, bits, codebook, rows, 0);
          wrong += !run_gemv(4352, 512, bits, codebook, rows, 0);
        }
    std::printf("check of gemv: %d bad\n", wrong);
    bad += wrong;
  }
  if (what == "clusters") {
    for (const int cluster : {1, 2, 4, 8}) {
      run_gemv(5120, 17408, 4, Codebook::mul1, 1, 300u << 20, cluster);
      run_gemv(17408, 5120, 4, Codebook::mul1, 1, 300u << 20, cluster);
      run_gemv(2048, 12288, 5, Codebook::mul1, 1, 300u << 20, cluster);
      run_gemv(2048, 9216, 5, Codebook::mul1, 1, 300u << 20, cluster);
      run_gemv(2048, 9216, 3, Codebook::mul1, 1, 300u << 20, cluster);
      run_gemv(4096, 2048, 5, Codebook::mul1, 1, 300u << 20, cluster);
      run_gemv(4096, 2048, 5, Codebook::mcg, 1, 300u << 20, cluster);
      run_gemv(2048, 248320, 6, Codebook::mul1, 1, 300u << 20, cluster);
    }
  }
  if (what == "rows") {
    for (const Codebook codebook : {Codebook::mul1, Codebook::mcg})
      for (const auto& [k, n] : {std::pair{2048, 12288}, {4096, 2048}})
        for (const int rows : {1, 2, 4, 8, 16, 32}) {
          if (rows <= gemv_most_rows(family_of(codebook))) run_gemv(k, n, 5, codebook, rows, 300u << 20);
          const Regime regime = few_rows_regime(codebook, 5, rows, context.shared_bytes);
          run({k, n, 5, codebook, regime.operand, regime.blocks, rows, true}, 300u << 20);
        }
  }
  if (what == "gemv-one") run_gemv(4096, 2048, 5, Codebook::mul1, 1, 100u << 20);
  if (what == "small") run({4096, 2048, 5, Codebook::mcg, Operand::pairs, 1, 1, false}, 0);
  if (what == "one") run({5120, 17408, 4, Codebook::mcg, Operand::pairs, 1, 1, false}, 0);
  if (what == "all" || what == "time" || what == "gemv") {
    const std::size_t rotate = 300u << 20;
    struct Shape {
      int k, n, bits;
    };
    for (const Codebook codebook : {Codebook::mcg, Codebook::mul1})
      for (const Shape s : {Shape{5120, 17408, 4},
                            {5120, 17408, 3},
                            {17408, 5120, 4},
                            {5120, 16384, 6},
                            {2048, 12288, 5},
                            {2048, 8192, 5},
                            {4096, 2048, 5},
                            {2048, 248320, 6}})
        for (const int rows : {1, 4, 8}) bad += !run_gemv(s.k, s.n, s.bits, codebook, rows, rotate);
  }
  if (what == "all" || what == "time") {
    const std::size_t rotate = 300u << 20;
    struct Shape {
      int k, n, bits;
    };
    for (const Codebook codebook : {Codebook::mcg, Codebook::mul1})
      for (const Shape s : {Shape{5120, 17408, 4},
                            {5120, 17408, 3},
                            {17408, 5120, 4},
                            {5120, 16384, 6},
                            {2048, 8192, 5},
                            {4096, 2048, 5},
                            {2048, 248320, 6}})
        for (const auto& [operand, blocks] : kernels(codebook))
          bad += !run({s.k, s.n, s.bits, codebook, operand, blocks,
                       blocks == 1 && operand != Operand::packed ? 1 : rows_of(operand, blocks), true},
                      rotate);
  }
  std::printf("bad: %d\n", bad);
  return bad != 0;
}
