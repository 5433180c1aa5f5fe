#include "backend/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <algorithm>

#include <array>
#include <cassert>

#include "backend/cuda/attention.h"
#include "backend/cuda/check.h"
#include "backend/cuda/delta_net.h"
#include "backend/cuda/device.h"
#include "backend/cuda/linear.h"
#include "backend/cuda/moe.h"
#include "backend/cuda/nccl_communicator.h"
#include "backend/recording.h"
#include "base/error.h"
#include "base/units.h"

namespace pergola {

namespace {

using cuda::Device;
using cuda::DeviceMemory;
using cuda::MatrixView;

class CudaBuffer final : public Buffer {
 public:
  CudaBuffer(std::size_t bytes, std::string_view what) : memory_(bytes, what) {}
  void* address() const override { return memory_.data(); }
  std::size_t bytes() const override { return memory_.bytes(); }

 private:
  DeviceMemory memory_;
};

class CudaEmbedding final : public Embedding {
 public:
  CudaEmbedding(Device& device, const DenseView& table)
      : type(table.dtype), memory(table.bytes.size(), "the embedding") {
    device.loader().copy(table.bytes.data(), table.bytes.size(), memory.data());
  }
  std::size_t bytes() const override { return memory.bytes(); }

  DType type;
  DeviceMemory memory;
};

MatrixView view_of(const Tensor& tensor) {
  assert(tensor.dtype == DType::f32 || tensor.dtype == DType::f16);
  return {static_cast<std::byte*>(tensor.buffer->address()) + tensor.offset, tensor.stride,
          static_cast<std::int32_t>(tensor.rows), static_cast<std::int32_t>(tensor.columns),
          tensor.dtype == DType::f32 ? 1 : 0};
}

int code_of(Activation activation) {
  if (activation == Activation::clamped_swiglu) fail({}, "the clamped SwiGLU is not supported by the CUDA backend");
  return activation == Activation::silu ? 0 : 1;
}

/// A CUDA graph of one step.
class CudaRecordedStep final : public RecordedStep {
 public:
  CudaRecordedStep(Device& device, cudaGraph_t graph) : device_(device), graph_(graph) {
    const cudaError_t error = cudaGraphInstantiate(&executable_, graph_, 0);
    if (error != cudaSuccess) {
      cudaGraphDestroy(graph_);
      cuda::fail_cuda(error, "preparing a recorded step");
    }
  }
  ~CudaRecordedStep() override {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  CudaRecordedStep(const CudaRecordedStep&) = delete;
  CudaRecordedStep& operator=(const CudaRecordedStep&) = delete;

  void replay() override { cuda::check(cudaGraphLaunch(executable_, device_.stream()), "running a recorded step"); }

 private:
  Device& device_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

class CudaBackend final : public Backend, public StepRecorder {
 public:
  explicit CudaBackend(const BackendOptions& options) : device_(options.device), max_rows_(options.max_rows) {
    info_ = {.backend = "cuda",
             .name = device_.name(),
             .instruction_set = device_.architecture(),
             .memory_bytes = device_.memory_bytes()};
  }

  const DeviceInfo& info() const override { return info_; }
  void enter_thread() override { device_.enter_thread(); }
  Device& device() { return device_; }
  DType activation_type() const override { return DType::f16; }
  DType cache_type() const override { return DType::f16; }
  std::int64_t max_rows() const override { return max_rows_; }

  std::unique_ptr<Buffer> allocate(std::size_t bytes, std::string_view what) override {
    return std::make_unique<CudaBuffer>(bytes, what);
  }

  void upload(const Tensor& to, const void* from) override {
    const std::size_t width = static_cast<std::size_t>(to.columns) * size_of(to.dtype),
                      pitch = static_cast<std::size_t>(to.stride) * size_of(to.dtype);
    if (to.rows == 0) return;
    cuda::check(cudaMemcpy2DAsync(address_of(to), to.rows == 1 ? width : pitch, from, width, width,
                                  static_cast<std::size_t>(to.rows), cudaMemcpyHostToDevice, device_.stream()),
                "copying to the device");
  }

  void download(void* to, const Tensor& from) override {
    const std::size_t width = static_cast<std::size_t>(from.columns) * size_of(from.dtype),
                      pitch = static_cast<std::size_t>(from.stride) * size_of(from.dtype);
    if (from.rows == 0) return;
    cuda::check(cudaMemcpy2DAsync(to, width, address_of(from), from.rows == 1 ? width : pitch, width,
                                  static_cast<std::size_t>(from.rows), cudaMemcpyDeviceToHost, device_.stream()),
                "copying from the device");
    device_.synchronize();
  }

  void fill_zero(const Tensor& tensor) override {
    if (tensor.rows == 0) return;
    const std::size_t width = static_cast<std::size_t>(tensor.columns) * size_of(tensor.dtype),
                      pitch = static_cast<std::size_t>(tensor.stride) * size_of(tensor.dtype);
    cuda::check(cudaMemset2DAsync(address_of(tensor), tensor.rows == 1 ? width : pitch, 0, width,
                                  static_cast<std::size_t>(tensor.rows), device_.stream()),
                "clearing memory");
  }

  void synchronize() override { device_.synchronize(); }

  std::unique_ptr<RecordedStep> record(const std::function<void()>& step) override {
    device_.synchronize();
    // Relaxed: the first use of a kernel may load it, which stricter modes forbid while recording.
    cuda::check(cudaStreamBeginCapture(device_.stream(), cudaStreamCaptureModeRelaxed), "recording a step");
    cudaGraph_t graph = nullptr;
    try {
      step();
    } catch (...) {
      cudaStreamEndCapture(device_.stream(), &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    cuda::check(cudaStreamEndCapture(device_.stream(), &graph), "recording a step");
    return std::make_unique<CudaRecordedStep>(device_, graph);
  }

  std::unique_ptr<LinearGroup> bind_linears(std::span<const LinearView> members) override {
    return std::make_unique<cuda::CudaLinears>(device_, members, max_rows_);
  }
  std::unique_ptr<Moe> bind_moe(const MoeView& moe) override {
    if (moe.score != RouterScore::softmax_top_k)
      fail({}, "{}: routing other than the softmax over the chosen experts is not supported by the CUDA backend",
           moe.name);
    if (std::ssize(moe.experts) != moe.router.out_features)
      fail({.field = "--experts"}, "experts spread over ranks are not supported by the CUDA backend; take split");
    if (moe.activation == Activation::clamped_swiglu)
      fail({}, "{}: experts with the clamped SwiGLU are not supported by the CUDA backend", moe.name);
    return std::make_unique<cuda::CudaMoe>(device_, moe, max_rows_);
  }
  std::unique_ptr<Embedding> bind_embedding(const DenseView& table) override {
    return std::make_unique<CudaEmbedding>(device_, table);
  }
  bool keeps_views() const override { return false; }

  void prepare(const Attention& layer) override {
    if (layer.head_dim % 8 != 0 || layer.head_dim > 256)
      fail({}, "attention heads of {} values are not supported by the CUDA backend: a multiple of 8, at most 256",
           layer.head_dim);
    if (layer.window > 0) fail({}, "sliding-window attention is not supported by the CUDA backend");
    if (layer.soft_cap > 0) fail({}, "attention with capped scores is not supported by the CUDA backend");
    if (layer.sinks) fail({}, "attention with sinks is not supported by the CUDA backend");
    if (layer.query_growth > 0)
      fail({}, "attention whose queries grow with the position is not supported by the CUDA backend");
    device_.work().reserve(footprint(layer).work, "the work space of attention");
  }
  void prepare(const DeltaNet& layer) override {
    if ((layer.key_dim != 32 && layer.key_dim != 64 && layer.key_dim != 128) || layer.value_dim % 32 != 0 ||
        layer.value_dim > 256)
      fail({}, "delta-net heads of {} keys and {} values are not supported by the CUDA backend", layer.key_dim,
           layer.value_dim);
    device_.work().reserve(footprint(layer).work, "the work space of delta nets");
  }

  Footprint footprint(std::span<const LinearView> members) const override {
    std::size_t bytes = 0;
    for (const LinearView& member : members) bytes += cuda::device_bytes(member);
    return {bytes, cuda::CudaLinears::work_bytes(members, max_rows_, device_.context().shared_bytes)};
  }
  Footprint footprint(const MoeView& moe) const override {
    return {cuda::CudaMoe::weight_bytes(moe), cuda::CudaMoe::work_bytes(moe, max_rows_, device_.context())};
  }
  Footprint footprint(const DenseView& embedding) const override { return {embedding.bytes.size(), 0}; }
  Footprint footprint(const Attention& layer) const override {
    return {0, static_cast<std::size_t>(cuda::attention_work_floats(device_.context().multiprocessors, layer.heads,
                                                                    layer.kv_heads, layer.head_dim)) *
                   4};
  }
  Footprint footprint(const DeltaNet& layer) const override {
    return {0, static_cast<std::size_t>(
                   cuda::DeltaNetParams::work_floats(max_rows_, layer.channels(), layer.value_heads, layer.value_dim)) *
                   4};
  }

  void embed(const Embedding& table, const Tensor& ids, float scale, const Tensor& out) override {
    const auto& bound = static_cast<const CudaEmbedding&>(table);
    cuda::launch_embed(device_.context(), bound.memory.data(), bound.type, ids.data<std::int32_t>(), scale,
                       view_of(out));
  }

  void rms_norm(const RmsNorm& norm, const Tensor& x, const Tensor& out) override {
    cuda::launch_rms_norm(device_.context(), view_of(x), nullptr, norm.weight.data<float>(), norm.eps, view_of(out));
  }

  void add_rms_norm(const RmsNorm& norm, const Tensor& residual, const Tensor& delta, const Tensor& out) override {
    const MatrixView added = view_of(delta);
    cuda::launch_rms_norm(device_.context(), view_of(residual), &added, norm.weight.data<float>(), norm.eps,
                          view_of(out));
  }

  void linear(const LinearGroup& group, const Tensor& x, std::span<const Tensor> outs) override {
    std::array<MatrixView, 16> views;
    assert(outs.size() <= views.size());
    for (std::size_t i = 0; i < outs.size(); ++i) views[i] = view_of(outs[i]);
    static_cast<const cuda::CudaLinears&>(group).run(device_, view_of(x), std::span(views).first(outs.size()));
  }

  void gated_activation(Activation activation, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    cuda::launch_gated_activation(device_.context(), code_of(activation), view_of(gate), view_of(up), view_of(out));
  }

  void attention(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& cache,
                 const Batch& batch, const Tensor& out) override {
    cuda::AttentionParams p;
    p.heads = layer.heads;
    p.kv_heads = layer.kv_heads;
    p.head_dim = layer.head_dim;
    p.gated = layer.gated;
    p.rows = static_cast<int>(batch.rows);
    p.scale = layer.scale;
    if (layer.q_norm) {
      p.q_norm = layer.q_norm->weight.data<float>();
      p.q_eps = layer.q_norm->eps;
    }
    if (layer.k_norm) {
      p.k_norm = layer.k_norm->weight.data<float>();
      p.k_eps = layer.k_norm->eps;
    }
    p.rope_dims = layer.rope.dims;
    p.rope_interleaved = layer.rope.interleaved;
    if (layer.rope.dims > 0) p.inv_freq = layer.rope.inv_freq.data<float>();
    p.rope_magnitude = layer.rope.magnitude;
    p.q = view_of(q);
    p.k = view_of(k);
    p.v = view_of(v);
    p.out = view_of(out);
    p.keys = static_cast<__half*>(address_of(cache.keys));
    p.values = static_cast<__half*>(address_of(cache.values));
    p.cache_stride = cache.keys.stride;
    p.page_size = static_cast<int>(cache.page_size);
    p.page_table = batch.page_table.data<std::int32_t>();
    p.page_table_stride = batch.page_table.stride;
    p.positions = batch.positions.data<std::int32_t>();
    p.row_sequence = batch.row_sequence.data<std::int32_t>();
    p.row_start = batch.row_start.data<std::int32_t>();
    p.sequences = static_cast<int>(batch.sequences);
    p.most_rows = static_cast<int>(batch.max_rows_per_sequence);
    p.work = reinterpret_cast<float*>(device_.work().data());
    cuda::launch_attention(device_.context(), p);
  }

  void delta_net(const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& a,
                 const DeltaNetState& state, const Batch& batch, const Tensor& out) override {
    cuda::DeltaNetParams p;
    p.key_heads = layer.key_heads;
    p.value_heads = layer.value_heads;
    p.key_dim = layer.key_dim;
    p.value_dim = layer.value_dim;
    p.kernel = layer.kernel;
    p.channels = static_cast<int>(layer.channels());
    p.rows = static_cast<int>(batch.rows);
    p.sequences = static_cast<int>(batch.sequences);
    p.eps = layer.norm.eps;
    p.conv_weight = layer.conv_weight.data<float>();
    p.a_log = layer.a_log.data<float>();
    p.dt_bias = layer.dt_bias.data<float>();
    p.norm_weight = layer.norm.weight.data<float>();
    p.qkv = view_of(qkv);
    p.z = view_of(z);
    p.a = view_of(a);
    p.b = view_of(b);
    p.out = view_of(out);
    p.window = state.window.data<float>();
    p.window_stride = state.window.stride;
    p.state = state.state.data<float>();
    p.state_stride = state.state.stride;
    p.row_sequence = batch.row_sequence.data<std::int32_t>();
    p.row_start = batch.row_start.data<std::int32_t>();
    p.slots = batch.slots.data<std::int32_t>();
    p.mixed = reinterpret_cast<float*>(device_.work().data());
    cuda::launch_delta_net(device_.context(), p);
  }

  void moe(const Moe& moe, const Tensor& x, const Tensor& out) override {
    static_cast<const cuda::CudaMoe&>(moe).run(device_, view_of(x), view_of(out));
  }

  void soft_cap(const Tensor& x, float cap) override { cuda::launch_soft_cap(device_.context(), view_of(x), cap); }

  void gather_rows(const Tensor& x, const Tensor& indices, const Tensor& out) override {
    const auto element = static_cast<std::int64_t>(size_of(x.dtype));
    cuda::launch_gather_rows(device_.context(), address_of(x), x.stride * element, indices.data<std::int32_t>(),
                             address_of(out), out.stride * element, x.columns * element, out.rows);
  }

 private:
  static void* address_of(const Tensor& tensor) {
    return static_cast<std::byte*>(tensor.buffer->address()) + tensor.offset;
  }

  Device device_;
  DeviceInfo info_;
  std::int64_t max_rows_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(std::span<Backend* const> backends) {
  std::vector<Device*> devices;
  for (Backend* backend : backends) {
    auto* const cuda = dynamic_cast<CudaBackend*>(backend);
    if (cuda == nullptr) return {};
    const bool taken = std::any_of(devices.begin(), devices.end(),
                                   [&](const Device* other) { return other->index() == cuda->device().index(); });
    if (taken) return {};  // NCCL wants a GPU a rank
    devices.push_back(&cuda->device());
  }
  return cuda::nccl_communicators(devices);
}

std::vector<DeviceListing> list_cuda_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) return {{"cuda", "", "the NVIDIA driver is missing or too old", false}};
  if (error != cudaSuccess || count == 0) return {{"cuda", "", "no CUDA device on this machine", false}};
  std::vector<DeviceListing> listings;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    listings.push_back(
        {"cuda", properties.name,
         fmt::format("compute capability {}.{}, {} multiprocessors, {}", properties.major, properties.minor,
                     properties.multiProcessorCount, human_bytes(static_cast<double>(properties.totalGlobalMem))),
         properties.major >= 8});
  }
  return listings;
}

}  // namespace pergola
