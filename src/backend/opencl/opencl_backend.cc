#include "backend/opencl/opencl_backend.h"

#include <fmt/format.h>

#include <array>
#include <cassert>
#include <map>

#include "backend/opencl/attention.h"
#include "backend/opencl/delta_net.h"
#include "backend/opencl/device.h"
#include "backend/opencl/linear.h"
#include "backend/opencl/moe.h"
#include "backend/opencl/tensor_argument.h"
#include "base/error.h"
#include "base/units.h"
#include "trellis/decode.h"

namespace pergola {

namespace {

using opencl::CacheType;
using opencl::Device;
using opencl::floats_of;
using opencl::Kernel;
using opencl::memory_of;
using opencl::offset_of;
using opencl::OpenClBuffer;
using opencl::stride_of;

class OpenClEmbedding final : public Embedding {
 public:
  OpenClEmbedding(Device& device, const DenseView& table)
      : arenas(device, std::array{table.bytes.size()}, "the embedding") {
    switch (table.dtype) {
      case DType::f32:
        type = 0;
        break;
      case DType::f16:
        type = 1;
        break;
      case DType::bf16:
        type = 2;
        break;
      default:
        fail({}, "embeddings of type {} are not supported by the OpenCL backend", name_of(table.dtype));
    }
    arenas.write(arenas.place(0), table.bytes.data(), table.bytes.size());
    arenas.seal();
  }
  std::size_t bytes() const override { return arenas.bytes(); }

  opencl::WeightArenas arenas;
  cl_uint type = 0;
};

/// Bytes and pitch of a tensor's rows on the device.
struct RowBytes {
  std::size_t width, pitch, offset;
  bool packed;
  explicit RowBytes(const Tensor& tensor)
      : width(static_cast<std::size_t>(tensor.columns) * size_of(tensor.dtype)),
        pitch(static_cast<std::size_t>(tensor.stride) * size_of(tensor.dtype)),
        offset(static_cast<std::size_t>(tensor.offset)),
        packed(tensor.rows == 1 || width == pitch) {}
};

CacheType cache_of(const BackendOptions& options) {
  if (options.cache_8bit) return CacheType::i8;
  return options.precision == Precision::exact ? CacheType::f32 : CacheType::f16;
}

class OpenClBackend final : public Backend {
 public:
  explicit OpenClBackend(const BackendOptions& options)
      : device_(options.device),
        max_rows_(options.max_rows),
        tiles_(options.precision, device_.has_matrix_units(), device_.facts().gpu),
        cache_(cache_of(options)),
        attention_(device_, cache_) {
    const opencl::DeviceFacts& facts = device_.facts();
    info_ = {.backend = "opencl",
             .name = facts.name,
             .instruction_set = facts.version,
             .threads = static_cast<int>(facts.compute_units),
             .memory_bytes = facts.memory_bytes,
             .shares_host_memory = facts.shares_host_memory};
    const auto elementwise = [&](const char* name) {
      return &device_.kernel("elementwise.cl", name, device_.base_options());
    };
    embed_ = elementwise("embed");
    rms_norm_ = elementwise("rms_norm");
    gated_activation_ = elementwise("gated_activation");
    soft_cap_ = elementwise("soft_cap");
    gather_words_ = elementwise("gather_words");
    gather_bytes_ = elementwise("gather_bytes");
  }

  const DeviceInfo& info() const override { return info_; }
  DType cache_type() const override {
    return cache_ == CacheType::f32 ? DType::f32 : cache_ == CacheType::f16 ? DType::f16 : DType::i8;
  }
  std::int64_t cache_columns(const Attention& layer) const override { return opencl::cache_columns(layer, cache_); }
  std::int64_t max_rows() const override { return max_rows_; }

  std::unique_ptr<Buffer> allocate(std::size_t bytes, std::string_view what) override {
    return std::make_unique<OpenClBuffer>(device_.allocate(bytes, what), bytes);
  }

  void upload(const Tensor& to, const void* from) override {
    if (to.rows == 0) return;
    // Small copies (the description of a step) are written without waiting for the device; `from` is free on return.
    const RowBytes row(to);
    const auto rows = static_cast<std::size_t>(to.rows);
    cl_int code;
    if (row.packed) {
      code = clEnqueueWriteBuffer(device_.queue(), memory_of(to), CL_TRUE, row.offset, row.width * rows, from, 0,
                                  nullptr, nullptr);
    } else {
      const std::array<std::size_t, 3> device_origin{row.offset, 0, 0}, host_origin{0, 0, 0},
          region{row.width, rows, 1};
      code = clEnqueueWriteBufferRect(device_.queue(), memory_of(to), CL_TRUE, device_origin.data(), host_origin.data(),
                                      region.data(), row.pitch, 0, row.width, 0, from, 0, nullptr, nullptr);
    }
    opencl::check(code, "copying to the device");
  }

  void download(void* to, const Tensor& from) override {
    if (from.rows == 0) return;
    const RowBytes row(from);
    const auto rows = static_cast<std::size_t>(from.rows);
    device_.count_wait();
    cl_int code;
    if (row.packed) {
      code = clEnqueueReadBuffer(device_.queue(), memory_of(from), CL_TRUE, row.offset, row.width * rows, to, 0,
                                 nullptr, nullptr);
    } else {
      const std::array<std::size_t, 3> device_origin{row.offset, 0, 0}, host_origin{0, 0, 0},
          region{row.width, rows, 1};
      code =
          clEnqueueReadBufferRect(device_.queue(), memory_of(from), CL_TRUE, device_origin.data(), host_origin.data(),
                                  region.data(), row.pitch, 0, row.width, 0, to, 0, nullptr, nullptr);
    }
    opencl::check(code, "copying from the device");
  }

  void fill_zero(const Tensor& tensor) override {
    const RowBytes row(tensor);
    const cl_uchar zero = 0;
    const auto fill = [&](std::size_t offset, std::size_t bytes) {
      opencl::check(
          clEnqueueFillBuffer(device_.queue(), memory_of(tensor), &zero, 1, offset, bytes, 0, nullptr, nullptr),
          "clearing memory");
    };
    if (tensor.rows == 0) return;
    if (row.packed) return fill(row.offset, row.width * static_cast<std::size_t>(tensor.rows));
    for (std::size_t r = 0; r < static_cast<std::size_t>(tensor.rows); ++r) fill(row.offset + r * row.pitch, row.width);
  }

  void synchronize() override { device_.synchronize(); }

  std::unique_ptr<LinearGroup> bind_linears(std::span<const LinearView> members) override {
    return std::make_unique<opencl::OpenClLinears>(device_, members, max_rows_, tiles_);
  }
  std::unique_ptr<Moe> bind_moe(const MoeView& moe) override {
    return std::make_unique<opencl::OpenClMoe>(device_, moe, max_rows_, tiles_);
  }
  std::unique_ptr<Embedding> bind_embedding(const DenseView& table) override {
    return std::make_unique<OpenClEmbedding>(device_, table);
  }
  bool keeps_views() const override { return false; }

  void prepare(const Attention& layer) override {
    if (layer.head_dim > opencl::kMostHeadDim)
      fail({}, "attention heads of {} values are not supported by the OpenCL backend: at most {}", layer.head_dim,
           opencl::kMostHeadDim);
    device_.reserve_work(footprint(layer).work);
  }
  void prepare(const DeltaNet& layer) override {
    delta_net_.try_emplace(layer.key_dim, device_, layer.key_dim);
    device_.reserve_work(footprint(layer).work);
  }

  Footprint footprint(std::span<const LinearView> members) const override {
    return {opencl::OpenClLinears::device_bytes(members), 0};
  }
  Footprint footprint(const MoeView& moe) const override {
    return {opencl::OpenClMoe::weight_bytes(moe), opencl::OpenClMoe::work_bytes(moe, max_rows_)};
  }
  Footprint footprint(const DenseView& embedding) const override { return {embedding.bytes.size(), 0}; }
  Footprint footprint(const Attention& layer) const override {
    return {0, opencl::attention_work_bytes(device_, layer, max_rows_)};
  }
  Footprint footprint(const DeltaNet& layer) const override {
    return {0, opencl::delta_net_work_bytes(layer, max_rows_)};
  }

  void embed(const Embedding& table, const Tensor& ids, float scale, const Tensor& out) override {
    const auto& bound = static_cast<const OpenClEmbedding&>(table);
    device_.launch(*embed_, by_column(out), bound.arenas.memories()[0], bound.type, memory_of(ids), offset_of(ids),
                   scale, memory_of(out), offset_of(out), stride_of(out), static_cast<cl_uint>(out.columns));
  }

  void rms_norm(const RmsNorm& norm, const Tensor& x, const Tensor& out) override { run_norm(norm, x, nullptr, out); }

  void add_rms_norm(const RmsNorm& norm, const Tensor& residual, const Tensor& delta, const Tensor& out) override {
    run_norm(norm, residual, &delta, out);
  }

  void linear(const LinearGroup& group, const Tensor& x, std::span<const Tensor> outs) override {
    std::array<opencl::FloatMatrix, 16> views;
    assert(outs.size() <= views.size());
    for (std::size_t i = 0; i < outs.size(); ++i) views[i] = floats_of(outs[i]);
    static_cast<const opencl::OpenClLinears&>(group).run(device_, floats_of(x), std::span(views).first(outs.size()));
  }

  void gated_activation(Activation activation, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    device_.launch(*gated_activation_, by_column(out), static_cast<cl_int>(activation), memory_of(gate),
                   offset_of(gate), stride_of(gate), memory_of(up), offset_of(up), stride_of(up), memory_of(out),
                   offset_of(out), stride_of(out), static_cast<cl_uint>(out.columns));
  }

  void attention(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& cache,
                 const Batch& batch, const Tensor& out) override {
    opencl::run_attention(device_, attention_, layer, q, k, v, cache, batch, out);
  }

  void delta_net(const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& a,
                 const DeltaNetState& state, const Batch& batch, const Tensor& out) override {
    opencl::run_delta_net(device_, delta_net_.at(layer.key_dim), layer, qkv, z, b, a, state, batch, out);
  }

  void moe(const Moe& moe, const Tensor& x, const Tensor& out) override {
    static_cast<const opencl::OpenClMoe&>(moe).run(device_, floats_of(x), floats_of(out));
  }

  void soft_cap(const Tensor& x, float cap) override {
    device_.launch(*soft_cap_, by_column(x), memory_of(x), offset_of(x), stride_of(x), cap,
                   static_cast<cl_uint>(x.columns));
  }

  void gather_rows(const Tensor& x, const Tensor& indices, const Tensor& out) override {
    const std::size_t size = size_of(x.dtype);
    const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements) * size; };
    const bool words = bytes(x.columns) % 4 == 0 && bytes(x.stride) % 4 == 0 && bytes(out.stride) % 4 == 0 &&
                       x.offset % 4 == 0 && out.offset % 4 == 0;
    const std::size_t unit = words ? 4 : 1, width = bytes(x.columns) / unit;
    device_.launch(*(words ? gather_words_ : gather_bytes_),
                   {{(width + 63) / 64, static_cast<std::size_t>(out.rows), 1}, {64, 1, 1}}, memory_of(x),
                   cl_ulong{static_cast<std::size_t>(x.offset) / unit}, cl_ulong{bytes(x.stride) / unit},
                   memory_of(indices), offset_of(indices), memory_of(out),
                   cl_ulong{static_cast<std::size_t>(out.offset) / unit}, cl_ulong{bytes(out.stride) / unit},
                   cl_ulong{width});
  }

 private:
  /// A work-item for each value, work-groups of 64 along the columns.
  static opencl::Grid by_column(const Tensor& tensor) {
    return {{static_cast<std::size_t>(tensor.columns + 63) / 64, static_cast<std::size_t>(tensor.rows), 1}, {64, 1, 1}};
  }

  void run_norm(const RmsNorm& norm, const Tensor& x, const Tensor* delta, const Tensor& out) {
    const Tensor& added = delta != nullptr ? *delta : x;
    device_.launch(*rms_norm_, {{static_cast<std::size_t>(x.rows), 1, 1}, {128, 1, 1}}, memory_of(x), offset_of(x),
                   stride_of(x), memory_of(added), offset_of(added), stride_of(added), cl_int{delta != nullptr ? 1 : 0},
                   memory_of(norm.weight), offset_of(norm.weight), norm.eps, memory_of(out), offset_of(out),
                   stride_of(out), static_cast<cl_uint>(x.columns));
  }

  Device device_;
  DeviceInfo info_;
  std::int64_t max_rows_;
  opencl::RowTiles tiles_;
  CacheType cache_;
  opencl::AttentionKernels attention_;
  std::map<int, opencl::DeltaNetKernels> delta_net_;  ///< by width of a key
  const Kernel* embed_ = nullptr;
  const Kernel* rms_norm_ = nullptr;
  const Kernel* gated_activation_ = nullptr;
  const Kernel* soft_cap_ = nullptr;
  const Kernel* gather_words_ = nullptr;
  const Kernel* gather_bytes_ = nullptr;
};

}  // namespace

std::unique_ptr<Backend> make_opencl_backend(const BackendOptions& options) {
  return std::make_unique<OpenClBackend>(options);
}

std::vector<DeviceListing> list_opencl_devices() {
  std::string why_none;
  std::vector<DeviceListing> listings;
  int index = 0;
  for (const opencl::DeviceFacts& facts : opencl::find_devices(why_none)) {
    listings.push_back(
        {"opencl", facts.name,
         fmt::format("--device {}: {}, driver {}, {} compute units, {}{}", index++, facts.platform_name, facts.driver,
                     facts.compute_units, human_bytes(static_cast<double>(facts.memory_bytes)),
                     facts.shares_host_memory ? " shared with the host" : ""),
         true});
  }
  if (listings.empty()) return {{"opencl", "", why_none, false}};
  return listings;
}

std::vector<std::vector<std::pair<std::string, std::string>>> describe_opencl_devices() {
  std::string why_none;
  std::vector<std::vector<std::pair<std::string, std::string>>> all;
  for (const opencl::DeviceFacts& facts : opencl::find_devices(why_none)) {
    all.push_back({{"name", facts.name},
                   {"vendor", facts.vendor},
                   {"platform", facts.platform_name},
                   {"version", facts.version},
                   {"driver", facts.driver},
                   {"compute_units", std::to_string(facts.compute_units)},
                   {"clock_mhz", std::to_string(facts.clock_mhz)},
                   {"memory_bytes", std::to_string(facts.memory_bytes)},
                   {"most_allocation_bytes", std::to_string(facts.most_allocation_bytes)},
                   {"local_bytes", std::to_string(facts.local_bytes)},
                   {"most_work_items", std::to_string(facts.most_work_items)},
                   {"shares_host_memory", facts.shares_host_memory ? "yes" : "no"},
                   {"extensions", facts.extensions}});
  }
  return all;
}

}  // namespace pergola
