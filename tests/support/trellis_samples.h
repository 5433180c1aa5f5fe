#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/half.h"
#include "trellis/linear_view.h"
#include "trellis/tile.h"

namespace pergola::testing {

/// The symbol generator of the format's test vectors: u = u * 1664525 + 1013904223, the top K bits are a symbol.
struct SymbolGenerator {
  std::uint32_t u = 1;

  std::uint16_t next(int bits) {
    u = u * 1664525u + 1013904223u;
    return static_cast<std::uint16_t>(u >> (32 - bits));
  }
};

/// A trellis that owns its bytes. `view()` stays valid while the object lives and is not moved.
struct OwnedTrellis {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  int bits = 0;
  Codebook codebook = Codebook::three_inst;
  std::vector<std::byte> trellis;
  std::vector<Half> suh;
  std::vector<Half> svh;

  TrellisView view() const {
    return {in_features,
            out_features,
            bits,
            codebook,
            trellis,
            std::as_bytes(std::span(suh)),
            std::as_bytes(std::span(svh))};
  }
};

/// All tiles from one continuing symbol generator, suh and svh those of the format's worked layer example.
inline OwnedTrellis example_trellis(std::int64_t in, std::int64_t out, int bits, Codebook codebook) {
  OwnedTrellis result{in, out, bits, codebook, {}, {}, {}};
  const std::int64_t tiles = in / kTileSide * (out / kTileSide);
  result.trellis.resize(static_cast<std::size_t>(tiles * tile_bytes(bits)));
  SymbolGenerator generator;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    std::uint16_t symbols[kTileWeights];
    for (std::uint16_t& symbol : symbols) symbol = generator.next(bits);
    pack_tile(symbols, bits, result.trellis.data() + tile * tile_bytes(bits));
  }
  for (std::int64_t i = 0; i < in; ++i) {
    const float sign = __builtin_parityll(static_cast<unsigned long long>(i)) ? -1.0f : 1.0f;
    result.suh.push_back(to_half(sign / 64 * (1 + static_cast<float>(i % 8) / 16)));
  }
  for (std::int64_t j = 0; j < out; ++j) {
    result.svh.push_back(to_half(((j >> 1) & 1 ? -1.0f : 1.0f) * (1 + static_cast<float>(j % 4) / 8)));
  }
  return result;
}

/// Random tiles, suh of both signs around 1/64, svh of both signs around 1.
inline OwnedTrellis random_trellis(std::int64_t in, std::int64_t out, int bits, Codebook codebook,
                                   std::uint32_t seed = 1) {
  OwnedTrellis result{in, out, bits, codebook, {}, {}, {}};
  std::mt19937 generator(seed);
  result.trellis.resize(static_cast<std::size_t>(in / kTileSide * (out / kTileSide) * tile_bytes(bits)));
  for (std::size_t at = 0; at < result.trellis.size(); at += 4) {
    const auto word = static_cast<std::uint32_t>(generator());
    std::memcpy(result.trellis.data() + at, &word, 4);
  }
  std::uniform_real_distribution<float> magnitude(0.5f, 1.5f);
  const auto value = [&](float scale) {
    return to_half(magnitude(generator) * scale * (generator() & 1u ? 1.0f : -1.0f));
  };
  for (std::int64_t i = 0; i < in; ++i) result.suh.push_back(value(1.0f / 64));
  for (std::int64_t j = 0; j < out; ++j) result.svh.push_back(value(1.0f));
  return result;
}

/// Values with normal distribution.
template <typename T>
std::vector<T> random_normal(std::int64_t count, std::uint32_t seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<T> normal;
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = normal(generator);
  return values;
}

/// sqrt(sum (a - b)^2 / sum b^2), b the reference.
template <typename A, typename B>
double relative_error(const A& a, const B& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

}  // namespace pergola::testing
