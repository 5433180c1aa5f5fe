// Weights a second of the tile encoder, one thread: the cost of quantisation. The floor is 131,072 state evaluations a
// weight.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

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

}  // namespace
}  // namespace pergola

BENCHMARK_MAIN();
