#include "eval/operation_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "backend/forwarding_backend.h"

namespace pergola {
namespace {

/// The reference backend with one operation spoilt.
class SpoiltBackend final : public ForwardingBackend {
 public:
  SpoiltBackend(Backend& inner, std::string spoilt, float factor)
      : ForwardingBackend(inner), spoilt_(std::move(spoilt)), factor_(factor) {}

  void embed(const Embedding& table, const Tensor& ids, float scale, const Tensor& out) override {
    inner_.embed(table, ids, scale, out);
    spoil("embed", out);
  }
  void rms_norm(const RmsNorm& norm, const Tensor& x, const Tensor& out) override {
    inner_.rms_norm(norm, x, out);
    spoil("rms_norm", out);
  }
  void add_rms_norm(const RmsNorm& norm, const Tensor& residual, const Tensor& delta, const Tensor& out) override {
    inner_.add_rms_norm(norm, residual, delta, out);
    spoil("add_rms_norm", residual);
  }
  void linear(const LinearGroup& group, const Tensor& x, std::span<const Tensor> outs) override {
    inner_.linear(group, x, outs);
    spoil("linear", outs.back());
  }
  void gated_activation(Activation activation, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    inner_.gated_activation(activation, gate, up, out);
    spoil(activation == Activation::silu        ? "silu"
          : activation == Activation::gelu_tanh ? "gelu_tanh"
                                                : "clamped_swiglu",
          out);
  }
  void attention(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& cache,
                 const Batch& batch, const Tensor& out) override {
    inner_.attention(layer, q, k, v, cache, batch, out);
    spoil("attention", out);
  }
  void delta_net(const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& a,
                 const DeltaNetState& state, const Batch& batch, const Tensor& out) override {
    inner_.delta_net(layer, qkv, z, b, a, state, batch, out);
    spoil("delta_net", state.state);
  }
  void moe(const Moe& moe, const Tensor& x, const Tensor& out) override {
    inner_.moe(moe, x, out);
    spoil("moe", out);
  }
  void soft_cap(const Tensor& x, float cap) override {
    inner_.soft_cap(x, cap);
    spoil("soft_cap", x);
  }
  void gather_rows(const Tensor& x, const Tensor& indices, const Tensor& out) override {
    inner_.gather_rows(x, indices, out);
    spoil("gather_rows", out);
  }

 private:
  /// Multiplies the last row by the factor.
  void spoil(std::string_view operation, const Tensor& tensor) {
    if (operation != spoilt_) return;
    float* last = tensor.row<float>(tensor.rows - 1);
    for (std::int64_t i = 0; i < tensor.columns; ++i) last[i] *= factor_;
  }

  std::string spoilt_;
  float factor_;
};

std::set<std::string> failed(const std::vector<OperationCheck>& checks) {
  std::set<std::string> names;
  for (const OperationCheck& check : checks) {
    if (!check.passed()) names.insert(check.operation);
  }
  return names;
}

TEST(OperationCheck, FindsTheOperationThatWasSpoilt) {
  const auto reference = open_backend("reference", {.max_rows = kCheckRows});
  SpoiltBackend sound(*reference, "none", 1);
  const std::vector<OperationCheck> checks = check_operations(sound, *reference);
  EXPECT_THAT(failed(checks), ::testing::IsEmpty());
  std::set<std::string> all;
  for (const OperationCheck& check : checks) all.insert(check.operation);
  EXPECT_EQ(all.size(), 12u);
  for (const std::string operation : {"linear", "delta_net", "embed", "attention", "soft_cap"}) {
    SpoiltBackend spoilt(*reference, operation, 1.05f);
    EXPECT_THAT(failed(check_operations(spoilt, *reference)), ::testing::ElementsAre(operation));
  }
}

TEST(OperationCheck, NotANumberIsAMiss) {
  const auto reference = open_backend("reference", {.max_rows = kCheckRows});
  SpoiltBackend spoilt(*reference, "moe", std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(failed(check_operations(spoilt, *reference)), ::testing::ElementsAre("moe"));
}

#ifdef PERGOLA_HAS_OPENCL
TEST(OperationCheck, OpenClAgreesWithTheReferenceSlow) {
  const auto is_there = [](const DeviceListing& device) { return device.backend == "opencl" && device.available; };
  if (std::ranges::none_of(list_devices(), is_there)) GTEST_SKIP() << "no OpenCL device";
  const auto opencl = open_backend("opencl", {.max_rows = kCheckRows});
  const auto reference = open_backend("reference", {.max_rows = kCheckRows});
  // Compiling for every kind takes minutes: `pergola verify` and opencl_linear_test.cc see to those.
  EXPECT_THAT(failed(check_operations(*opencl, *reference, false)), ::testing::IsEmpty());
}
#endif

}  // namespace
}  // namespace pergola
