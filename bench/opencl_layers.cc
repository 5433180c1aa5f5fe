// Speed of packed linears and expert layers on an OpenCL device, beside what a copy of device memory reaches in the
// same run:
//   opencl_layers [DEVICE]
// Random weights. Medians of five batches; a batch waits once for the device.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>

#include "backend/opencl/device.h"
#include "backend/opencl/linear.h"
#include "backend/opencl/moe.h"
#include "base/error.h"

namespace pergola::opencl {
namespace {

/// Seconds of one call.
double time_of(Device& device, const std::function<void()>& run, int calls) {
  std::vector<double> seconds;
  for (int batch = -1; batch < 5; ++batch) {  // the first warms up
    device.synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) run();
    device.synchronize();
    const double each = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
    if (batch >= 0) seconds.push_back(each);
  }
  std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
  return seconds[2];
}

std::vector<std::byte> random_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::mt19937 generator(1);
  for (std::size_t i = 0; i + 4 <= count; i += 4) {
    const std::uint32_t word = generator();
    std::copy_n(reinterpret_cast<const std::byte*>(&word), 4, bytes.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return bytes;
}

struct Weights {
  std::vector<std::byte> trellis;
  std::vector<std::uint16_t> ones;
  LinearView view;

  Weights(std::int64_t in, std::int64_t out, int bits, Codebook codebook)
      : trellis(random_bytes(static_cast<std::size_t>(in * out * bits / 8))),
        ones(static_cast<std::size_t>(std::max(in, out)), 0x3C00) {
    const auto halves = std::as_bytes(std::span(ones));
    view = {"weights", in, out,
            TrellisView{in, out, bits, codebook, trellis, halves.first(static_cast<std::size_t>(in) * 2),
                        halves.first(static_cast<std::size_t>(out) * 2)},
            std::nullopt};
  }
};

FloatMatrix floats(Device& device, std::vector<Memory>& keep, std::int64_t rows, std::int64_t columns) {
  keep.push_back(device.allocate(static_cast<std::size_t>(rows * columns) * 4, "a benchmark"));
  return {keep.back().get(), 0, static_cast<cl_uint>(columns), rows, columns};
}

void report(const std::string& what, double seconds, double bytes, double copy) {
  fmt::print("{:52} {:9.1f} us {:9.1f} GB/s {:5.1f} % of copy\n", what, seconds * 1e6, bytes / seconds * 1e-9,
             100 * bytes / seconds / copy);
}

void run(int index) {
  Device device(index);
  std::vector<Memory> keep;
  fmt::print("{}, driver {}\n", device.facts().name, device.facts().driver);
  const std::size_t bytes = device.facts().gpu ? std::size_t{1} << 30 : std::size_t{64} << 20;
  const Memory from = device.allocate(bytes, "a copy"), to = device.allocate(bytes, "a copy");
  const double copy =
      2.0 * static_cast<double>(bytes) /
      time_of(
          device,
          [&] {
            check(clEnqueueCopyBuffer(device.queue(), from.get(), to.get(), 0, 0, bytes, 0, nullptr, nullptr),
                  "copying");
          },
          3);
  fmt::print("{:52} {:>12} {:9.1f} GB/s\n", "copy (read and written)", "", copy * 1e-9);
  const std::int64_t scale = device.facts().gpu ? 1 : 8;  // a processor gets smaller matrices
  for (const Precision precision : {Precision::standard, Precision::int8}) {
    const char* name = precision == Precision::int8 ? "int8" : "standard";
    const RowTiles tiles(precision, device.has_matrix_units(), device.facts().gpu);
    for (const auto& [codebook, bits] : {std::pair{Codebook::mul1, 4}, {Codebook::mul1, 3}, {Codebook::mcg, 4}}) {
      const std::int64_t in = 8192 / scale, out = 16384 / scale;
      const Weights weights(in, out, bits, codebook);
      const OpenClLinears linears(device, std::span(&weights.view, 1), 16, tiles);
      for (const std::int64_t rows : {1, 4, 16}) {
        const FloatMatrix x = floats(device, keep, rows, in), y = floats(device, keep, rows, out);
        report(fmt::format("{}, linear {} x {}, {} K={}, {} rows", name, in, out, name_of(codebook), bits, rows),
               time_of(
                   device, [&] { linears.run(device, x, std::span(&y, 1)); }, 20),
               static_cast<double>(in * out * bits) / 8, copy);
      }
    }
    // An expert layer of Qwen3.5-35B-A3B.
    const std::int64_t hidden = 2048 / scale, width = 512 / scale;
    const Weights wide(hidden, width, 4, Codebook::mul1), down(width, hidden, 4, Codebook::mul1);
    std::vector<float> router(static_cast<std::size_t>(256 * hidden), 0.0f);
    std::mt19937 generator(2);
    for (float& value : router) value = static_cast<float>(generator() % 1000) * 1e-3f - 0.5f;
    MoeView moe{.name = "experts", .hidden = hidden, .top_k = 8};
    moe.router = {"router", hidden, 256, DenseView{DType::f32, 256, hidden, std::as_bytes(std::span(router))},
                  std::nullopt};
    moe.experts.assign(256, {wide.view, wide.view, down.view});
    moe.shared = moe.experts.front();
    const OpenClMoe layer(device, moe, 512, tiles);
    for (const std::int64_t rows : {1, 4, 512}) {
      const FloatMatrix x = floats(device, keep, rows, hidden), y = floats(device, keep, rows, hidden);
      const double experts = rows > 4 ? 257.0 : 9.0 * static_cast<double>(rows);
      report(fmt::format("{}, experts 8 of 256 + 1, {} x {}, {} rows", name, hidden, width, rows),
             time_of(
                 device, [&] { layer.run(device, x, y); }, 20),
             experts * 3 * static_cast<double>(hidden * width) / 2, copy);
    }
  }
}

}  // namespace
}  // namespace pergola::opencl

int main(int count, char** words) {
  try {
    pergola::opencl::run(count > 1 ? std::atoi(words[1]) : 0);
  } catch (const pergola::Error& error) {
    fmt::print(stderr, "opencl_layers: {}\n", error.what());
    return 1;
  }
}
