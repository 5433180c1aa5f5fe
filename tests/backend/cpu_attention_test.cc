#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/backend.h"
#include "support/device_tensors.h"
#include "support/trellis_samples.h"

namespace pergola {
namespace {

using testing::CpuVariant;
using testing::DeviceTensors;
using testing::random_normal;
using testing::relative_error;

struct Shape {
  int heads, kv_heads, head_dim, rope_dims;
  bool gated, norms, interleaved;
};

/// Tokens that a sequence has in the cache already, and rows of it in the step.
struct Piece {
  std::int64_t past, rows;
};

/// What only some families have. `ring`: the cache is a ring of window - 1 + rows of the step.
struct Extras {
  std::int64_t window = 0;
  bool ring = false;
  float soft_cap = 0;
  bool sinks = false;
  float growth = 0;
};

struct Case {
  Shape shape;
  std::vector<Piece> pieces;
  std::int64_t page_size;
  Extras extras = {};
};

/// One step of a case on a backend: what attention puts out, and what is in the cache afterwards.
struct Outcome {
  std::vector<float> out, keys, values;
};

/// The inputs are those of the case, whatever the backend. `cache` is the element type of keys and values.
Outcome run(Backend& backend, const Case& test, DType cache) {
  const Shape& s = test.shape;
  DeviceTensors made(backend, 7);
  Attention layer{.heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .gated = s.gated};
  layer.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  if (s.norms) {
    layer.q_norm = RmsNorm{made.floats(random_normal<float>(s.head_dim, 11), 1), 1e-6f};
    layer.k_norm = RmsNorm{made.floats(random_normal<float>(s.head_dim, 12), 1), 1e-6f};
  }
  std::vector<float> frequencies;
  for (int j = 0; j < s.rope_dims / 2; ++j)
    frequencies.push_back(std::pow(1e4f, -2.0f * static_cast<float>(j) / static_cast<float>(s.rope_dims)));
  layer.rope = {.dims = s.rope_dims, .interleaved = s.interleaved, .magnitude = 1.1f};
  if (s.rope_dims > 0) layer.rope.inv_freq = made.floats(frequencies, 1);
  layer.window = test.extras.window;
  layer.soft_cap = test.extras.soft_cap;
  layer.query_growth = test.extras.growth;
  layer.query_growth_length = 50;
  if (test.extras.sinks) layer.sinks = made.floats(random_normal<float>(s.heads, 13), 1);
  backend.prepare(layer);

  Batch batch;
  std::vector<std::int32_t> positions, sequence_of, starts{0};
  std::int64_t most_pages = 0, pages = 0;
  for (const Piece& piece : test.pieces) {
    for (std::int64_t t = 0; t < piece.rows; ++t) {
      positions.push_back(static_cast<std::int32_t>(piece.past + t));
      sequence_of.push_back(static_cast<std::int32_t>(starts.size() - 1));
    }
    starts.push_back(static_cast<std::int32_t>(positions.size()));
    const std::int64_t needed = (piece.past + piece.rows + test.page_size - 1) / test.page_size;
    most_pages = std::max(most_pages, needed);
    pages += needed;
  }
  // Pages are handed out backwards, unused entries of the table name a page that is not there.
  std::vector<std::int32_t> table;
  std::int64_t next = pages;
  for (const Piece& piece : test.pieces) {
    const std::int64_t needed = (piece.past + piece.rows + test.page_size - 1) / test.page_size;
    for (std::int64_t p = 0; p < most_pages; ++p) table.push_back(p < needed ? static_cast<std::int32_t>(--next) : -1);
  }
  batch.sequences = static_cast<std::int64_t>(test.pieces.size());
  batch.rows = static_cast<std::int64_t>(positions.size());
  for (const Piece& piece : test.pieces)
    batch.max_rows_per_sequence = std::max(batch.max_rows_per_sequence, piece.rows);
  batch.positions = made.ints(positions);
  batch.row_sequence = made.ints(sequence_of);
  batch.row_start = made.ints(starts);
  batch.page_table = made.ints(table, batch.sequences);
  std::vector<std::int32_t> slots(test.pieces.size());
  for (std::size_t q = 0; q < slots.size(); ++q) slots[q] = static_cast<std::int32_t>(slots.size() - 1 - q);
  batch.slots = made.ints(slots);
  const std::int64_t ring = test.extras.ring ? test.extras.window - 1 + batch.rows : 0;
  const std::int64_t cache_rows = ring > 0 ? ring * batch.sequences : pages * test.page_size;

  // Tokens of the past are in the cache, everything else in it is NaN.
  const std::int64_t width = s.kv_heads * s.head_dim;
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> keys(static_cast<std::size_t>(cache_rows * width), nan), values = keys;
  for (std::size_t q = 0; q < test.pieces.size(); ++q) {
    const std::vector<float> k = random_normal<float>(test.pieces[q].past * width, 100 + static_cast<std::uint32_t>(q));
    const std::vector<float> v = random_normal<float>(test.pieces[q].past * width, 200 + static_cast<std::uint32_t>(q));
    for (std::int64_t t = 0; t < test.pieces[q].past; ++t) {
      const std::int64_t page =
          table[q * static_cast<std::size_t>(most_pages) + static_cast<std::size_t>(t / test.page_size)];
      const std::int64_t row = ring > 0 ? slots[q] * ring + t % ring : page * test.page_size + t % test.page_size;
      std::copy_n(k.begin() + t * width, width, keys.begin() + row * width);
      std::copy_n(v.begin() + t * width, width, values.begin() + row * width);
    }
  }
  const KvLayer kv{made.floats(keys, cache_rows, cache), made.floats(values, cache_rows, cache), test.page_size, ring};
  const std::int64_t query_width = s.heads * s.head_dim * (s.gated ? 2 : 1);
  const Tensor q = made.floats(random_normal<float>(batch.rows * query_width, 1), batch.rows);
  const Tensor k = made.floats(random_normal<float>(batch.rows * width, 2), batch.rows);
  const Tensor v = made.floats(random_normal<float>(batch.rows * width, 3), batch.rows);
  const Tensor out = made.result(batch.rows, s.heads * s.head_dim);
  backend.attention(layer, q, k, v, kv, batch, out);
  backend.synchronize();
  return {made.read(out), made.read(kv.keys), made.read(kv.values)};
}

const std::vector<Case> kCases = {
    {{4, 2, 64, 32, true, true, false}, {{0, 1}}, 16},
    {{4, 2, 64, 32, true, true, false}, {{0, 5}, {3, 1}, {70, 20}}, 16},
    {{4, 4, 80, 80, false, false, true}, {{0, 130}}, 16},                  // one query head a kv head
    {{16, 2, 256, 64, true, true, false}, {{300, 1}, {0, 70}}, 256},       // Qwen3.5's shape
    {{16, 2, 256, 64, true, true, false}, {{1500, 1}, {700, 3}}, 64},      // split keys, few queries
    {{8, 1, 96, 0, false, true, false}, {{900, 12}, {0, 1}, {63, 2}}, 7},  // split keys, many queries, odd pages
    {{70, 1, 40, 8, true, false, false}, {{10, 3}}, 5},                    // more heads than a block holds
    {{6, 2, 33, 6, true, true, false}, {{0, 67}, {129, 35}}, 13},          // nothing is a multiple of anything
    {{2, 2, 128, 128, false, true, false}, {{0, 1}, {1, 1}, {2, 1}, {4000, 1}}, 32},
    {{4, 2, 64, 64, false, false, false}, {{0, 1}, {3, 20}, {90, 40}, {700, 1}}, 16, {.window = 33}},
    {{4, 2, 64, 64, false, false, false}, {{0, 1}, {3, 20}, {90, 40}, {700, 1}}, 16, {.window = 33, .ring = true}},
    {{8, 1, 96, 96, false, true, false}, {{900, 12}, {2000, 1}}, 64, {.window = 600, .ring = true}},  // split keys
    {{4, 2, 64, 64, false, false, false}, {{0, 90}, {600, 1}}, 16, {.soft_cap = 1.5f, .sinks = true}},
    {{4, 4, 40, 40, false, false, true}, {{0, 70}, {300, 2}}, 16, {.window = 1, .sinks = true, .growth = 0.3f}},
};

/// NaN rows that nobody wrote differ from themselves: compare bit patterns by way of their order.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

TEST(CpuAttention, EqualsTheReference) {
  const std::unique_ptr<Backend> reference = open_backend("reference", {.threads = 2});
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Outcome expected = run(*reference, kCases[i], DType::f32);
    for (const CpuVariant& variant : testing::cpu_variants()) {
      SCOPED_TRACE(variant.isa + ", " + std::to_string(variant.threads) + " threads");
      const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = variant.threads, .isa = variant.isa});
      const Outcome exact = run(*cpu, kCases[i], DType::f32);
      ASSERT_LE(relative_error(exact.out, expected.out), 2e-6);
      ASSERT_LE(relative_error(run(*cpu, kCases[i], DType::f16).out, expected.out), 1e-3);
      ASSERT_LE(relative_error(run(*cpu, kCases[i], DType::bf16).out, expected.out), 8e-3);
      for (std::size_t j = 0; j < expected.keys.size(); ++j) {
        ASSERT_EQ(std::isnan(expected.keys[j]), std::isnan(exact.keys[j]))
            << "a row that is not of the step was written";
        if (std::isnan(expected.keys[j])) continue;
        ASSERT_NEAR(exact.keys[j], expected.keys[j], 1e-5);
        ASSERT_EQ(exact.values[j], expected.values[j]);
      }
    }
  }
}

TEST(CpuAttention, DoesNotDependOnTheTeam) {
  for (const Case& test : kCases) {
    const Outcome one = run(*open_backend("cpu", {.threads = 1}), test, DType::f16);
    for (const int threads : {2, 3, 5}) {
      const Outcome more = run(*open_backend("cpu", {.threads = threads}), test, DType::f16);
      ASSERT_EQ(one.out, more.out);
      ASSERT_TRUE(same(one.keys, more.keys) && same(one.values, more.values));
    }
  }
}

TEST(CpuAttention, ASequenceDoesNotDependOnTheOthers) {
  const Shape shape{16, 2, 128, 64, true, true, false};
  const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = 2});
  const std::vector<float> alone = run(*cpu, {shape, {{2000, 1}}, 64}, DType::f16).out;
  const std::vector<float> together = run(*cpu, {shape, {{2000, 1}, {5, 90}, {0, 1}}, 64}, DType::f16).out;
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin()));
}

TEST(CpuAttention, ManySequencesAndLongThenShort) {
  const std::unique_ptr<Backend> reference = open_backend("reference", {.threads = 2});
  const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = 2});
  const Shape shape{4, 2, 64, 32, true, true, false};
  std::vector<Piece> many;
  for (std::int64_t i = 0; i < 200; ++i) many.push_back({900 + i % 7, 1});
  // More partial results than fit at once, then less than before; twice, so that leftovers of the large step would
  // show.
  const std::vector<Case> cases{{shape, many, 32}, {shape, {{0, 200}}, 32}, {shape, {{4, 1}}, 32}};
  std::vector<Outcome> expected;
  for (const Case& test : cases) expected.push_back(run(*reference, test, DType::f32));
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      ASSERT_LE(relative_error(run(*cpu, cases[i], DType::f32).out, expected[i].out), 2e-6);
    }
  }
}

/// Many values between -1 and 1, faster than random ones.
std::vector<float> scattered(std::int64_t count, std::uint32_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31f;
  }
  return values;
}

/// Angles at the far end of Qwen3.5's context, and magnitudes that overflow a naive softmax.
TEST(CpuAttention, FarPositionsAndLargeScores) {
  const std::unique_ptr<Backend> reference = open_backend("reference", {});
  const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = 2});
  for (const std::int32_t position : {5, 262143}) {
    std::vector<float> results[2];
    for (Backend* backend : {reference.get(), cpu.get()}) {
      DeviceTensors made(*backend);
      Attention layer{.heads = 1, .kv_heads = 1, .head_dim = 64, .scale = 30.0f};
      std::vector<float> frequencies;
      for (int j = 0; j < 32; ++j) frequencies.push_back(std::pow(1e7f, -2.0f * static_cast<float>(j) / 64));
      layer.rope = {.dims = 64, .inv_freq = made.floats(frequencies, 1)};
      backend->prepare(layer);
      // One page of the whole context: only its last row is this test's own.
      Batch batch{.rows = 1, .sequences = 1, .max_rows_per_sequence = 1};
      batch.positions = made.ints({position});
      batch.row_sequence = made.ints({0});
      batch.row_start = made.ints({0, 1});
      batch.page_table = made.ints({0});
      const std::int64_t tokens = position + 1;
      const KvLayer kv{made.floats(scattered(tokens * 64, 5), tokens), made.floats(scattered(tokens * 64, 6), tokens),
                       tokens};
      const Tensor q = made.floats(random_normal<float>(64, 1), 1), k = made.floats(random_normal<float>(64, 2), 1);
      const Tensor v = made.floats(random_normal<float>(64, 3), 1), out = made.result(1, 64);
      backend->attention(layer, q, k, v, kv, batch, out);
      backend->synchronize();
      std::vector<float>& result = results[backend == cpu.get() ? 1 : 0];
      result = made.read(out);
      const std::vector<float> rotated = made.read(kv.keys.slice_rows(position, 1));
      result.insert(result.end(), rotated.begin(), rotated.end());
    }
    EXPECT_LE(relative_error(results[1], results[0]), 2e-4)
        << position;  // scores in the hundreds: exp amplifies their rounding
  }
}

}  // namespace
}  // namespace pergola
