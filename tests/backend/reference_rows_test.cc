#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "support/device_tensor.h"
#include "support/trellis_samples.h"

namespace pergola {
namespace {

using testing::DeviceTensor;
using testing::random_normal;

class ReferenceRows : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = open_backend("reference", {.threads = 1});
};

TEST_F(ReferenceRows, NormDividesByTheRootMeanSquare) {
  const DeviceTensor weight(*backend_, {1, 2, -1, 0});
  const DeviceTensor x(*backend_, 2, 4, std::vector<float>{2, 2, 2, 2, 3, -1, 3, -1});
  const DeviceTensor out(*backend_, 2, 4);
  backend_->rms_norm({weight, 0}, x, out);
  const float scale = 1 / std::sqrt(5.0f);
  const std::vector<float> expected{1, 2, -1, 0, 3 * scale, -2 * scale, -3 * scale, 0};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(out.values()[i], expected[i]);
  // eps is inside the root.
  backend_->rms_norm({weight, 12}, x, out);
  EXPECT_FLOAT_EQ(out.values()[0], 0.5f);
}

TEST_F(ReferenceRows, AddNormUpdatesTheResidual) {
  const DeviceTensor weight(*backend_, {1, 1});
  const DeviceTensor residual(*backend_, 1, 2, std::vector<float>{1, 2});
  const DeviceTensor delta(*backend_, 1, 2, std::vector<float>{2, -5});
  const DeviceTensor out(*backend_, 1, 2);
  backend_->add_rms_norm({weight, 0}, residual, delta, out);
  EXPECT_EQ(residual.values(), (std::vector<float>{3, -3}));
  EXPECT_EQ(out.values(), (std::vector<float>{1, -1}));
}

TEST_F(ReferenceRows, ActivationsGateAndMayWorkInPlace) {
  const DeviceTensor gate(*backend_, 1, 4, std::vector<float>{0, 1, -2, 100});
  const DeviceTensor up(*backend_, 1, 4, std::vector<float>{5, 2, 3, 1});
  const DeviceTensor out(*backend_, 1, 4);
  backend_->gated_activation(Activation::gelu_tanh, gate, up, out);
  const std::vector<double> gelu{0, 2 * 0.8411919906, 3 * -0.0454023059, 100};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(out.values()[i], gelu[i], 1e-6);
  backend_->gated_activation(Activation::silu, gate, up, gate);
  const std::vector<double> silu{0, 2 * 0.7310585786, 3 * -0.2384058441, 100};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(gate.values()[i], silu[i], 1e-6);
}

TEST_F(ReferenceRows, EmbeddingAndGatherTakeRowsByIndex) {
  std::vector<BFloat16> table;
  for (int i = 0; i < 12; ++i) table.push_back(to_bfloat16(static_cast<float>(i)));
  const auto embedding = backend_->bind_embedding({DType::bf16, 4, 3, std::as_bytes(std::span(table))});
  const DeviceTensor ids(*backend_, 1, 3, std::vector<std::int32_t>{3, 0, 3});
  const DeviceTensor x(*backend_, 3, 3);
  backend_->embed(*embedding, ids, 1.0f, x);
  EXPECT_EQ(x.values(), (std::vector<float>{9, 10, 11, 0, 1, 2, 9, 10, 11}));
  const DeviceTensor indices(*backend_, 1, 2, std::vector<std::int32_t>{2, 1});
  const DeviceTensor out(*backend_, 2, 3);
  backend_->gather_rows(x, indices, out);
  EXPECT_EQ(out.values(), (std::vector<float>{9, 10, 11, 0, 1, 2}));
}

TEST_F(ReferenceRows, CopiesAndClearsPartsOfATensor) {
  const DeviceTensor whole(*backend_, 3, 4, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const Tensor part = whole.tensor().slice_rows(1, 2).slice_columns(1, 2);
  std::vector<float> values(4);
  backend_->download(values.data(), part);
  EXPECT_EQ(values, (std::vector<float>{6, 7, 10, 11}));
  values = {-1, -2, -3, -4};
  backend_->upload(part, values.data());
  backend_->fill_zero(part.slice_rows(1, 1));
  EXPECT_EQ(whole.values(), (std::vector<float>{1, 2, 3, 4, 5, -1, -2, 8, 9, 0, 0, 12}));
}

TEST_F(ReferenceRows, LinearReadsAndWritesColumnsOfWiderTensors) {
  const std::vector<float> weight{1, 2, 3, 4};
  const LinearView view{"w", 2, 2, DenseView{DType::f32, 2, 2, std::as_bytes(std::span(weight))}, {}};
  const auto group = backend_->bind_linears(std::span(&view, 1));
  const DeviceTensor x(*backend_, 2, 3, std::vector<float>{9, 1, 1, 9, 0, 1});
  const DeviceTensor y(*backend_, 2, 4);
  const Tensor out = y.tensor().slice_columns(2, 2);
  backend_->linear(*group, x.tensor().slice_columns(1, 2), std::span(&out, 1));
  EXPECT_EQ(y.values(), (std::vector<float>{0, 0, 3, 7, 0, 0, 2, 4}));
}

TEST(Registry, NamesTheBackendsItHas) {
  try {
    open_backend("quantum", {});
    FAIL() << "an unknown backend was opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("quantum"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("reference"), std::string::npos);
  }
  bool found = false;
  for (const DeviceListing& listing : list_devices()) found |= listing.backend == "reference" && listing.available;
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace pergola
