#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "backend/backend.h"

namespace pergola {

/// Passes every operation on to another backend, which outlives it: what watches or changes some operations derives
/// from it and overrides those. Recording is not passed on.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}

  const DeviceInfo& info() const override { return inner_.info(); }
  void enter_thread() override { inner_.enter_thread(); }
  DType activation_type() const override { return inner_.activation_type(); }
  DType cache_type() const override { return inner_.cache_type(); }
  std::int64_t cache_columns(const Attention& layer) const override { return inner_.cache_columns(layer); }
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

  std::unique_ptr<LinearGroup> bind_linears(std::span<const LinearView> members) override {
    return inner_.bind_linears(members);
  }
  std::unique_ptr<Moe> bind_moe(const MoeView& moe) override { return inner_.bind_moe(moe); }

  void embed(const Embedding& table, const Tensor& ids, float scale, const Tensor& out) override {
    inner_.embed(table, ids, scale, out);
  }
  void rms_norm(const RmsNorm& norm, const Tensor& x, const Tensor& out) override { inner_.rms_norm(norm, x, out); }
  void add_rms_norm(const RmsNorm& norm, const Tensor& residual, const Tensor& delta, const Tensor& out) override {
    inner_.add_rms_norm(norm, residual, delta, out);
  }
  void linear(const LinearGroup& group, const Tensor& x, std::span<const Tensor> outs) override {
    inner_.linear(group, x, outs);
  }
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
  void moe(const Moe& moe, const Tensor& x, const Tensor& out) override { inner_.moe(moe, x, out); }
  void soft_cap(const Tensor& x, float cap) override { inner_.soft_cap(x, cap); }
  void gather_rows(const Tensor& x, const Tensor& indices, const Tensor& out) override {
    inner_.gather_rows(x, indices, out);
  }

 protected:
  Backend& inner_;
};

}  // namespace pergola
