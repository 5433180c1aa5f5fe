// Weights a second of the tile encoder, one thread: the cost of quantisation. The floor is 131,072 state evaluations a
// weight.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "backend/tile_encoders.h"
#include "base/error.h"
#include "trellis/tile_encoder.h"

namespace pergola {
namespace {

void encode_tiles(benchmark::State& state) {
  const auto codebook = static_cast<Codebook>(state.range(0));
  const auto bits = static_cast<int>(state.range(1));
  const auto isa = static_cast<Isa>(state.range(2));
  if (isa > cpu_features().best) {
    state.SkipWithError("not on this processor");
    return;
  }
  TileEncoder encoder(codebook, bits, isa);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> targets(4 * kTileWeights);
  for (float& target : targets) target = normal(random);
  std::vector<std::uint16_t> states(targets.size());
  for (auto _ : state) encoder.encode(targets, states);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(targets.size()));
  state.SetLabel(std::string(name_of(codebook)) + " K=" + std::to_string(bits) + " " + std::string(name_of(isa)));
}

BENCHMARK(encode_tiles)->ArgsProduct({{2}, {1, 2, 3, 4, 5, 6, 7, 8}, {1, 2}})->Unit(benchmark::kMillisecond);

/// Many tiles at once on the CUDA device, copies to and from it included; range(2) is the number of tiles.
void encode_on_device(benchmark::State& state) {
  std::unique_ptr<TileBatchEncoder> encoder;
  try {
    encoder = open_tile_encoder("cuda");
  } catch (const Error& error) {
    state.SkipWithError(error.what());
    return;
  }
  const auto codebook = static_cast<Codebook>(state.range(0));
  const auto bits = static_cast<int>(state.range(1));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> targets(static_cast<std::size_t>(state.range(2)) * kTileWeights);
  for (float& target : targets) target = normal(random);
  std::vector<std::uint16_t> states(targets.size());
  encoder->encode(codebook, bits, targets, states);  // its memory
  for (auto _ : state) encoder->encode(codebook, bits, targets, states);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(targets.size()));
  state.SetLabel(std::string(name_of(codebook)) + " K=" + std::to_string(bits));
}

BENCHMARK(encode_on_device)
    ->ArgsProduct({{1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, {1056}})
    ->ArgsProduct({{2}, {4}, {32, 128}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace pergola

BENCHMARK_MAIN();
