#include "backend/reference/reference_backend.h"

#include <cassert>
#include <cmath>
#include <cstring>

#include "backend/packed_bytes.h"
#include "backend/reference/arithmetic.h"
#include "backend/reference/attention.h"
#include "backend/reference/delta_net.h"
#include "backend/reference/host_buffer.h"
#include "backend/reference/linear.h"
#include "backend/reference/moe.h"
#include "backend/reference/weights.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "base/units.h"

namespace pergola {

namespace {

class ReferenceLinears final : public LinearGroup {
 public:
  explicit ReferenceLinears(std::span<const LinearView> members) : views(members.begin(), members.end()) {}

  std::int64_t in_features() const override { return views.front().in_features; }
  std::int64_t members() const override { return static_cast<std::int64_t>(views.size()); }
  std::int64_t out_features(std::int64_t member) const override {
    return views[static_cast<std::size_t>(member)].out_features;
  }
  std::size_t bytes() const override { return packed_bytes(views); }

  std::vector<LinearView> views;
};

class ReferenceMoe final : public Moe {
 public:
  explicit ReferenceMoe(const MoeView& moe) : view(moe) {}
  std::size_t bytes() const override { return packed_bytes(view); }

  MoeView view;
};

class ReferenceEmbedding final : public Embedding {
 public:
  explicit ReferenceEmbedding(const DenseView& view) : table(view) {}
  std::size_t bytes() const override { return table.bytes.size(); }

  DenseView table;
};

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(const BackendOptions& options)
      : pool_(options.threads > 0 ? options.threads : ThreadPool::available_processors(), options.pin_threads),
        max_rows_(options.max_rows) {
    info_ = {.backend = "reference", .name = "plain loops", .instruction_set = "scalar", .threads = pool_.size()};
  }

  const DeviceInfo& info() const override { return info_; }
  std::int64_t max_rows() const override { return max_rows_; }

  std::unique_ptr<Buffer> allocate(std::size_t bytes, std::string_view what) override {
    auto buffer = std::make_unique<reference::HostBuffer>(bytes);
    if (buffer->address() == nullptr)
      fail({}, "there is not enough memory for {}: {}", what, human_bytes(static_cast<double>(bytes)));
    return buffer;
  }

  void upload(const Tensor& to, const void* from) override {
    const std::size_t width = static_cast<std::size_t>(to.columns) * size_of(to.dtype);
    for (std::int64_t r = 0; r < to.rows; ++r)
      std::memcpy(row_bytes(to, r), static_cast<const std::byte*>(from) + static_cast<std::size_t>(r) * width, width);
  }

  void download(void* to, const Tensor& from) override {
    const std::size_t width = static_cast<std::size_t>(from.columns) * size_of(from.dtype);
    for (std::int64_t r = 0; r < from.rows; ++r)
      std::memcpy(static_cast<std::byte*>(to) + static_cast<std::size_t>(r) * width, row_bytes(from, r), width);
  }

  void fill_zero(const Tensor& tensor) override {
    for (std::int64_t r = 0; r < tensor.rows; ++r)
      std::memset(row_bytes(tensor, r), 0, static_cast<std::size_t>(tensor.columns) * size_of(tensor.dtype));
  }

  std::unique_ptr<LinearGroup> bind_linears(std::span<const LinearView> members) override {
    return std::make_unique<ReferenceLinears>(members);
  }
  std::unique_ptr<Moe> bind_moe(const MoeView& moe) override { return std::make_unique<ReferenceMoe>(moe); }
  std::unique_ptr<Embedding> bind_embedding(const DenseView& table) override {
    return std::make_unique<ReferenceEmbedding>(table);
  }
  bool keeps_views() const override { return true; }

  void prepare(const Attention&) override {}
  void prepare(const DeltaNet&) override {}
  Footprint footprint(std::span<const LinearView> members) const override { return {packed_bytes(members), 0}; }
  Footprint footprint(const MoeView& moe) const override { return {packed_bytes(moe), 0}; }
  Footprint footprint(const DenseView& embedding) const override { return {embedding.bytes.size(), 0}; }
  Footprint footprint(const Attention&) const override { return {}; }
  Footprint footprint(const DeltaNet&) const override { return {}; }

  void embed(const Embedding& table, const Tensor& ids, float scale, const Tensor& out) override {
    const DenseView& view = static_cast<const ReferenceEmbedding&>(table).table;
    for (std::int64_t r = 0; r < out.rows; ++r) {
      reference::read_dense(view, ids.data<std::int32_t>()[r] * view.columns, view.columns, out.row<float>(r));
      for (std::int64_t c = 0; c < out.columns; ++c) out.row<float>(r)[c] *= scale;
    }
  }

  void rms_norm(const RmsNorm& norm, const Tensor& x, const Tensor& out) override {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      reference::rms_normalize(x.row<float>(r), norm.weight.data<float>(), norm.eps, x.columns, out.row<float>(r));
    }
  }

  void add_rms_norm(const RmsNorm& norm, const Tensor& residual, const Tensor& delta, const Tensor& out) override {
    for (std::int64_t r = 0; r < residual.rows; ++r) {
      for (std::int64_t c = 0; c < residual.columns; ++c) residual.row<float>(r)[c] += delta.row<float>(r)[c];
    }
    rms_norm(norm, residual, out);
  }

  void linear(const LinearGroup& group, const Tensor& x, std::span<const Tensor> outs) override {
    const auto& views = static_cast<const ReferenceLinears&>(group).views;
    assert(outs.size() == views.size());
    for (std::size_t i = 0; i < views.size(); ++i) {
      reference::apply_linear(views[i], x.data<float>(), x.stride, x.rows, outs[i].data<float>(), outs[i].stride,
                              &pool_);
    }
  }

  void gated_activation(Activation activation, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    for (std::int64_t r = 0; r < out.rows; ++r) {
      reference::gated_activation(activation, gate.row<float>(r), up.row<float>(r), out.columns, out.row<float>(r));
    }
  }

  void attention(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& cache,
                 const Batch& batch, const Tensor& out) override {
    reference::attention(layer, q, k, v, cache, batch, out, pool_);
  }

  void delta_net(const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& a,
                 const DeltaNetState& state, const Batch& batch, const Tensor& out) override {
    reference::delta_net(layer, qkv, z, b, a, state, batch, out, pool_);
  }

  void moe(const Moe& moe, const Tensor& x, const Tensor& out) override {
    reference::moe(static_cast<const ReferenceMoe&>(moe).view, x, out, pool_);
  }

  void soft_cap(const Tensor& x, float cap) override {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      for (std::int64_t c = 0; c < x.columns; ++c) {
        float& value = x.row<float>(r)[c];
        value = static_cast<float>(cap * std::tanh(static_cast<double>(value) / cap));
      }
    }
  }

  void gather_rows(const Tensor& x, const Tensor& indices, const Tensor& out) override {
    const std::size_t width = static_cast<std::size_t>(x.columns) * size_of(x.dtype);
    for (std::int64_t r = 0; r < out.rows; ++r)
      std::memcpy(row_bytes(out, r), row_bytes(x, indices.data<std::int32_t>()[r]), width);
  }

 private:
  static std::byte* row_bytes(const Tensor& tensor, std::int64_t row) {
    return static_cast<std::byte*>(tensor.buffer->address()) + tensor.offset +
           row * tensor.stride * static_cast<std::int64_t>(size_of(tensor.dtype));
  }

  DeviceInfo info_;
  ThreadPool pool_;
  std::int64_t max_rows_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options) {
  return std::make_unique<ReferenceBackend>(options);
}

std::vector<DeviceListing> list_reference_devices() {
  return {{"reference", "plain loops", "defines every operation; slow", true}};
}

}  // namespace pergola
