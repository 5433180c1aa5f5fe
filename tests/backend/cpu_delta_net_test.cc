#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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
  int key_heads, value_heads, key_dim, value_dim, kernel;
};

/// A sequence: its slot, and the rows of it in each step.
struct Sequence {
  std::int64_t slot;
  std::vector<std::int64_t> steps;
};

struct Outcome {
  std::vector<float> out;  ///< all rows of the first sequence, then of the second, ...
  std::vector<float> window, state;
};

constexpr std::int64_t kSlots = 5;

std::vector<float> part(const std::vector<float>& all, std::int64_t first, std::int64_t count) {
  return {all.begin() + first, all.begin() + first + count};
}

/// Runs the steps on fresh slots. `decay` moves the log decay: +3 forgets within a token, -9 hardly at all.
Outcome run(Backend& backend, const Shape& s, const std::vector<Sequence>& sequences, float decay,
            std::uint32_t seed = 1) {
  DeviceTensors constant(backend);
  DeltaNet layer{.key_heads = s.key_heads,
                 .value_heads = s.value_heads,
                 .key_dim = s.key_dim,
                 .value_dim = s.value_dim,
                 .kernel = s.kernel};
  const std::int64_t channels = layer.channels(), values = std::int64_t{s.value_heads} * s.value_dim;
  layer.conv_weight = constant.floats(random_normal<float>(channels * s.kernel, seed + 1), channels);
  std::vector<float> a_log = random_normal<float>(s.value_heads, seed + 2);
  for (float& x : a_log) x += decay;
  layer.a_log = constant.floats(a_log, 1);
  layer.dt_bias = constant.floats(random_normal<float>(s.value_heads, seed + 3), 1);
  layer.norm = {constant.floats(random_normal<float>(s.value_dim, seed + 4), 1), 1e-6f};
  backend.prepare(layer);

  DeviceTensors made(backend, 5);
  const std::int64_t state_size = std::int64_t{s.value_heads} * s.key_dim * s.value_dim;
  DeltaNetState state{made.result(kSlots, (s.kernel - 1) * channels), made.result(kSlots, state_size)};
  for (const Sequence& sequence : sequences) {
    backend.fill_zero(state.window.slice_rows(sequence.slot, 1));
    backend.fill_zero(state.state.slice_rows(sequence.slot, 1));
  }
  // Inputs of a sequence are one stream, however it is cut into steps.
  struct Stream {
    std::vector<float> qkv, z, b, a, out;
    std::int64_t done = 0;
  };
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    std::int64_t rows = 0;
    for (const std::int64_t n : sequences[i].steps) rows += n;
    const std::uint32_t own = seed + 10 * static_cast<std::uint32_t>(sequences[i].slot);
    streams.push_back({random_normal<float>(rows * channels, own + 5),
                       random_normal<float>(rows * values, own + 6),
                       random_normal<float>(rows * s.value_heads, own + 7),
                       random_normal<float>(rows * s.value_heads, own + 8),
                       {}});
  }
  for (std::size_t step = 0; step < sequences[0].steps.size(); ++step) {
    std::vector<float> qkv, z, b, a;
    std::vector<std::int32_t> starts{0}, slots, sequence_of;
    Batch batch;
    const auto append = [](std::vector<float>& to, const std::vector<float>& from, std::int64_t first,
                           std::int64_t count) {
      to.insert(to.end(), from.begin() + first, from.begin() + first + count);
    };
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::int64_t rows = sequences[i].steps[step];
      Stream& stream = streams[i];
      append(qkv, stream.qkv, stream.done * channels, rows * channels);
      append(z, stream.z, stream.done * values, rows * values);
      append(b, stream.b, stream.done * s.value_heads, rows * s.value_heads);
      append(a, stream.a, stream.done * s.value_heads, rows * s.value_heads);
      stream.done += rows;
      batch.rows += rows;
      batch.max_rows_per_sequence = std::max(batch.max_rows_per_sequence, rows);
      starts.push_back(static_cast<std::int32_t>(batch.rows));
      slots.push_back(static_cast<std::int32_t>(sequences[i].slot));
      sequence_of.insert(sequence_of.end(), static_cast<std::size_t>(rows), static_cast<std::int32_t>(i));
    }
    batch.sequences = static_cast<std::int64_t>(sequences.size());
    batch.row_start = made.ints(starts);
    batch.slots = made.ints(slots);
    batch.row_sequence = made.ints(sequence_of);
    const Tensor out = made.result(batch.rows, values);
    backend.delta_net(layer, made.floats(qkv, batch.rows), made.floats(z, batch.rows), made.floats(b, batch.rows),
                      made.floats(a, batch.rows), state, batch, out);
    backend.synchronize();
    const std::vector<float> rows = made.read(out);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      append(streams[i].out, rows, starts[i] * values, (starts[i + 1] - starts[i]) * values);
    }
  }
  Outcome outcome;
  for (const Stream& stream : streams) outcome.out.insert(outcome.out.end(), stream.out.begin(), stream.out.end());
  for (const Sequence& sequence : sequences) {
    for (const auto& [tensor, to] :
         {std::pair{&state.window, &outcome.window}, std::pair{&state.state, &outcome.state}}) {
      const std::vector<float> row = made.read(tensor->slice_rows(sequence.slot, 1));
      to->insert(to->end(), row.begin(), row.end());
    }
  }
  return outcome;
}

const std::vector<Shape> kShapes = {{2, 2, 64, 64, 4}, {2, 4, 128, 128, 4}, {2, 6, 64, 64, 4}, {1, 4, 128, 128, 4},
                                    {3, 3, 20, 37, 4}, {2, 4, 16, 24, 2},   {1, 2, 33, 50, 5}};

const std::vector<std::vector<Sequence>> kBatches = {
    {{3, {1}}},          {{0, {1, 1, 1, 1, 1}}},
    {{2, {5, 1, 3, 1}}}, {{1, {63, 1, 1}}},
    {{1, {64, 2}}},      {{4, {65}}},
    {{0, {200, 1}}},     {{4, {2, 1, 70}}, {0, {1, 1, 1}}, {2, {40, 3, 1}}},
};

TEST(CpuDeltaNet, EqualsTheReference) {
  const std::unique_ptr<Backend> reference = open_backend("reference", {.threads = 2});
  for (const Shape& shape : kShapes) {
    for (std::size_t i = 0; i < kBatches.size(); ++i) {
      for (const float decay : {-9.0f, 0.0f, 4.0f}) {
        SCOPED_TRACE(::testing::Message() << shape.key_heads << " " << shape.value_heads << " " << shape.key_dim << " "
                                          << shape.value_dim << ", batch " << i << ", decay " << decay);
        const Outcome expected = run(*reference, shape, kBatches[i], decay);
        for (const CpuVariant& variant : testing::cpu_variants()) {
          const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = variant.threads, .isa = variant.isa});
          const Outcome actual = run(*cpu, shape, kBatches[i], decay);
          ASSERT_LE(relative_error(actual.out, expected.out), 1e-5) << variant.isa;
          ASSERT_LE(relative_error(actual.state, expected.state), 1e-5) << variant.isa;
          ASSERT_EQ(actual.window, expected.window);
        }
      }
    }
  }
}

TEST(CpuDeltaNet, DoesNotDependOnTheTeamOrTheOtherSequences) {
  for (const Shape& shape : kShapes) {
    const Outcome one = run(*open_backend("cpu", {.threads = 1}), shape, kBatches.back(), 0);
    for (const int threads : {2, 3, 8}) {
      const Outcome more = run(*open_backend("cpu", {.threads = threads}), shape, kBatches.back(), 0);
      ASSERT_EQ(one.out, more.out);
      ASSERT_EQ(one.state, more.state);
    }
    const Outcome alone = run(*open_backend("cpu", {.threads = 2}), shape, {kBatches.back()[0]}, 0);
    ASSERT_EQ(alone.out, part(one.out, 0, static_cast<std::int64_t>(alone.out.size())));
  }
}

/// A prompt may be cut anywhere.
TEST(CpuDeltaNet, PiecesGiveWhatTheWholeGives) {
  const Shape shape{2, 4, 128, 128, 4};
  const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = 2});
  const Outcome whole = run(*cpu, shape, {{0, {150}}}, -2);
  for (const std::vector<std::int64_t>& steps :
       {std::vector<std::int64_t>{1, 149}, {2, 1, 147}, {64, 64, 22}, {65, 85}, {149, 1}}) {
    const Outcome pieces = run(*cpu, shape, {{0, steps}}, -2);
    EXPECT_LE(relative_error(pieces.out, whole.out), 1e-5);
    EXPECT_LE(relative_error(pieces.state, whole.state), 1e-5);
    EXPECT_EQ(pieces.window, whole.window);
  }
}

}  // namespace
}  // namespace pergola
