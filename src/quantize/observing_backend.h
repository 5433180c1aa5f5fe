#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace pergola {

/// What linears that share an input were given.
struct ObservedInput {
  const std::string& name;         ///< of the first member of the group
  const Tensor& x;                 ///< [rows, in_features], in device memory, valid during the call only
  std::span<const float> routing;  ///< the factor of each row's output, for routed experts; empty: 1 for every row
};

using InputObserver = std::function<void(const ObservedInput& input)>;

/// A backend that passes everything on and tells an observer the inputs of every linear, for calibration. In a mixture
/// of experts every expert is shown every row, with the weight that the router gave it: its gate stands for gate and
/// up; `moe.name` stands for the input of the whole. That costs extra work, and its memory is taken when experts are
/// bound.
class ObservingBackend final : public Backend {
 public:
  ObservingBackend(Backend& inner, InputObserver observer) : inner_(inner), observer_(std::move(observer)) {}

  const DeviceInfo& info() const override { return inner_.info(); }
  DType activation_type() const override { return inner_.activation_type(); }
  DType cache_type() const override { return inner_.cache_type(); }
  std::int64_t max_rows() const override { return inner_.max_rows(); }
  std::unique_ptr<Buffer> allocate(std::size_t bytes, std::string_view what) override {
    return inner_.allocate(bytes, what);
  }
  void upload(const Tensor& to, const void* from) override { inner_.upload(to, from); }
  void download(void* to, const Tensor& from) override { inner_.download(to, from); }
  void fill_zero(const Tensor& tensor) override { inner_.fill_zero(tensor); }
  void synchronize() override { inner_.synchronize(); }
  bool keeps_views() const override { return inner_.keeps_views(); }
  void prepare(const Attention& layer) override { inner_.prepare(layer); }
  void prepare(const DeltaNet& layer) override { inner_.prepare(layer); }
  Footprint footprint(std::span<const LinearView> members) const override { return inner_.footprint(members); }
  Footprint footprint(const MoeView& moe) const override { return inner_.footprint(moe); }
  Footprint footprint(const DenseView& embedding) const override { return inner_.footprint(embedding); }
  Footprint footprint(const Attention& layer) const override { return inner_.footprint(layer); }
  Footprint footprint(const DeltaNet& layer) const override { return inner_.footprint(layer); }
  std::unique_ptr<Embedding> bind_embedding(const DenseView& table) override { return inner_.bind_embedding(table); }

  std::unique_ptr<LinearGroup> bind_linears(std::span<const LinearView> members) override;
  std::unique_ptr<Moe> bind_moe(const MoeView& moe) override;

  void embed(const Embedding& table, const Tensor& ids, float scale, const Tensor& out) override {
    inner_.embed(table, ids, scale, out);
  }
  void rms_norm(const RmsNorm& norm, const Tensor& x, const Tensor& out) override { inner_.rms_norm(norm, x, out); }
  void add_rms_norm(const RmsNorm& norm, const Tensor& residual, const Tensor& delta, const Tensor& out) override {
    inner_.add_rms_norm(norm, residual, delta, out);
  }
  void linear(const LinearGroup& group, const Tensor& x, std::span<const Tensor> outs) override;
  void gated_activation(Activation activation, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    inner_.gated_activation(activation, gate, up, out);
  }
  void attention(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& cache,
                 const Batch& batch, const Tensor& out) override {
    inner_.attention(layer, q, k, v, cache, batch, out);
  }
  void delta_net(const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& a,
                 const DeltaNetState& state, const Batch& batch, const Tensor& out) override {
    inner_.delta_net(layer, qkv, z, b, a, state, batch, out);
  }
  void moe(const Moe& moe, const Tensor& x, const Tensor& out) override;
  void soft_cap(const Tensor& x, float cap) override { inner_.soft_cap(x, cap); }
  void gather_rows(const Tensor& x, const Tensor& indices, const Tensor& out) override {
    inner_.gather_rows(x, indices, out);
  }

 private:
  /// Gate and up of one expert, to compute what its down projection gets.
  struct ExpertProbe {
    std::string gate;
    std::string down;
    bool routed = false;
    std::unique_ptr<LinearGroup> gate_up;
  };
  struct MoeProbe {
    MoeView view;  ///< how it routes; without its experts
    std::unique_ptr<LinearGroup> router;
    std::vector<ExpertProbe> experts;  ///< the routed ones, then the shared one
    std::unique_ptr<Buffer> buffer;
    Tensor gate;
    Tensor up;
    Tensor logits;  ///< f32 [max_rows, routed experts]
  };

  std::vector<float> routing_of(const MoeProbe& probe, const Tensor& x);

  Backend& inner_;
  InputObserver observer_;
  std::map<const LinearGroup*, std::string> groups_;
  std::map<const Moe*, MoeProbe> moes_;
};

}  // namespace pergola
