#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "support/device_tensor.h"
#include "support/trellis_samples.h"

namespace pergola {
namespace {

using testing::DeviceBatch;
using testing::DeviceTensor;
using testing::random_normal;

/// Two key heads of 4, six value heads of 3: 34 channels. Five slots.
class ReferenceDeltaNet : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSlots = 5;
  static constexpr std::int64_t kChannels = 34;
  static constexpr std::int64_t kValues = 18;

  ReferenceDeltaNet() {
    layer_.key_heads = 2;
    layer_.value_heads = 6;
    layer_.key_dim = 4;
    layer_.value_dim = 3;
    layer_.conv_weight = conv_;
    layer_.a_log = a_log_;
    layer_.dt_bias = dt_bias_;
    layer_.norm = {norm_, 1e-6f};
    state_ = {window_, state_values_};
  }

  std::vector<float> run(const std::vector<float>& qkv, const std::vector<float>& z, const std::vector<float>& b,
                         const std::vector<float>& a, const Batch& batch) {
    const DeviceTensor out(*backend_, batch.rows, kValues);
    backend_->delta_net(layer_, DeviceTensor(*backend_, batch.rows, kChannels, qkv),
                        DeviceTensor(*backend_, batch.rows, kValues, z), DeviceTensor(*backend_, batch.rows, 6, b),
                        DeviceTensor(*backend_, batch.rows, 6, a), state_, batch, out);
    return out.values();
  }

  /// The same with random gates.
  std::vector<float> run(const std::vector<float>& qkv, const Batch& batch) {
    return run(qkv, random_normal<float>(batch.rows * kValues, 11), random_normal<float>(batch.rows * 6, 12),
               random_normal<float>(batch.rows * 6, 13), batch);
  }

  std::unique_ptr<Backend> backend_ = open_backend("reference", {.threads = 2});
  DeviceTensor conv_{*backend_, kChannels, 4, random_normal<float>(kChannels * 4, 1)};
  DeviceTensor a_log_{*backend_, random_normal<float>(6, 2)};
  DeviceTensor dt_bias_{*backend_, random_normal<float>(6, 3)};
  DeviceTensor norm_{*backend_, {1, 1, 1}};
  DeviceTensor window_{*backend_, kSlots, 3 * kChannels, random_normal<float>(kSlots * 3 * kChannels, 4)};
  DeviceTensor state_values_{*backend_, kSlots, 6 * 4 * 3, random_normal<float>(kSlots * 72, 5)};
  DeltaNet layer_;
  DeltaNetState state_;
};

TEST_F(ReferenceDeltaNet, KeepsTheLastThreeInputsOfTheConvolution) {
  for (const std::int64_t rows : {1, 2, 3, 4, 7}) {
    const std::vector<float> before = window_.values();
    const std::vector<float> qkv = random_normal<float>(rows * kChannels, 20 + static_cast<std::uint32_t>(rows));
    run(qkv, DeviceBatch(*backend_, {rows}, {0}, {2}, {0}));
    std::vector<float> history(before.begin() + 2 * 3 * kChannels, before.begin() + 3 * 3 * kChannels);
    history.insert(history.end(), qkv.begin(), qkv.end());
    const std::vector<float> last(history.end() - 3 * kChannels, history.end());
    const std::vector<float> after = window_.values();
    EXPECT_EQ(std::vector<float>(after.begin() + 2 * 3 * kChannels, after.begin() + 3 * 3 * kChannels), last)
        << rows << " rows";
  }
}

TEST_F(ReferenceDeltaNet, TouchesOnlyTheSlotsOfTheBatch) {
  const std::vector<float> window = window_.values(), state = state_values_.values();
  run(random_normal<float>(5 * kChannels, 6), DeviceBatch(*backend_, {2, 3}, {0, 0}, {3, 1}, {0, 0}));
  const std::vector<float> window_after = window_.values(), state_after = state_values_.values();
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    const bool same_window = std::equal(window.begin() + static_cast<std::ptrdiff_t>(slot * 3 * kChannels),
                                        window.begin() + static_cast<std::ptrdiff_t>((slot + 1) * 3 * kChannels),
                                        window_after.begin() + static_cast<std::ptrdiff_t>(slot * 3 * kChannels));
    const bool same_state = std::equal(state.begin() + static_cast<std::ptrdiff_t>(slot * 72),
                                       state.begin() + static_cast<std::ptrdiff_t>((slot + 1) * 72),
                                       state_after.begin() + static_cast<std::ptrdiff_t>(slot * 72));
    EXPECT_EQ(same_window, slot != 3 && slot != 1) << slot;
    EXPECT_EQ(same_state, slot != 3 && slot != 1) << slot;
  }
}

TEST_F(ReferenceDeltaNet, GivesConsecutiveValueHeadsOneKeyHead) {
  backend_->fill_zero(state_.state);
  backend_->fill_zero(state_.window);
  // Only the current token counts, and SiLU of large values is the value. Key head 0 has q orthogonal to k, key head 1
  // has q = k.
  std::vector<float> taps;
  for (std::int64_t c = 0; c < kChannels; ++c) taps.insert(taps.end(), {0, 0, 0, 1});
  backend_->upload(conv_, taps.data());
  const float x = 50;
  std::vector<float> qkv{x, 0, 0, 0, 0, x, 0, 0, 0, x, 0, 0, 0, x, 0, 0};  // q0 q1 k0 k1
  for (int i = 0; i < kValues; ++i) qkv.push_back(x);
  const std::vector<float> out = run(qkv, std::vector<float>(kValues, 1.0f), std::vector<float>(6, 0.0f),
                                     std::vector<float>(6, 0.0f), DeviceBatch(*backend_, {1}, {0}, {0}, {0}));
  const auto gate = static_cast<float>(1 / (1 + std::exp(-1.0)));
  for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(out[i], 0, 1e-6) << i;  // heads 0..2
  for (std::size_t i = 9; i < 18; ++i)
    EXPECT_NEAR(out[i], gate, 1e-5) << i;  // heads 3..5: equal values normalise to one
}

TEST_F(ReferenceDeltaNet, AClosedGateWithoutDecayLeavesTheStateAsItWas) {
  const std::vector<float> state = state_values_.values();
  const std::vector<float> closed(2 * 6, -1e4f);  // sigmoid and softplus of it are zero
  const std::vector<float> z = random_normal<float>(2 * kValues, 7);
  run(random_normal<float>(2 * kChannels, 8), z, closed, closed, DeviceBatch(*backend_, {2}, {0}, {4}, {0}));
  EXPECT_EQ(state_values_.values(), state);
}

TEST_F(ReferenceDeltaNet, FullDecayForgetsTheState) {
  const std::vector<float> qkv = random_normal<float>(kChannels, 9), z = random_normal<float>(kValues, 10);
  const std::vector<float> forget(6, 1e4f), open(6, 0.0f);
  backend_->fill_zero(state_.window);
  const std::vector<float> with_past = run(qkv, z, open, forget, DeviceBatch(*backend_, {1}, {0}, {0}, {0}));
  backend_->fill_zero(state_.window);
  backend_->fill_zero(state_.state);
  EXPECT_EQ(run(qkv, z, open, forget, DeviceBatch(*backend_, {1}, {0}, {0}, {0})), with_past);
}

}  // namespace
}  // namespace pergola
