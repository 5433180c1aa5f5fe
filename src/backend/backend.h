#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/batch.h"
#include "backend/operations.h"
#include "backend/precision.h"
#include "backend/tensor.h"

namespace pergola {

/// What a device is and what was asked of it.
struct DeviceInfo {
  std::string backend;          ///< "reference", "cpu", "cuda", "opencl"
  std::string name;             ///< the processor's or card's own name
  std::string instruction_set;  ///< the widest path in use, e.g. "avx512"; empty where it does not apply
  int threads = 0;
  std::uint64_t memory_bytes = 0;   ///< what the device could hold in all
  bool shares_host_memory = false;  ///< the device's memory is the machine's own
};

/// Choices a person makes when a backend is opened.
struct BackendOptions {
  int threads = 0;  ///< 0: every processor that the process may use
  bool pin_threads = false;
  std::string isa = "auto";  ///< cap of the instruction set: "scalar", "avx2", "avx512", "amx"
  Precision precision = Precision::standard;
  int device = 0;               ///< which of the backend's devices, in the order of list_devices
  bool cache_8bit = false;      ///< keys and values in 8 bits, with a scale a head
  std::int64_t max_rows = 512;  ///< most rows of one step; work space is sized by it when weights are bound
};

/// What binding something takes, computed from shapes alone.
struct Footprint {
  std::size_t weights = 0;  ///< bytes of the weights where the device reads them: mapped files included
  std::size_t work =
      0;  ///< bytes of work space. Layers share it: a device needs the largest of its layers, not the sum
};

/// The operations that a model needs, on one device. backend/reference defines each of them in plain loops; every other
/// backend is compared with it.
///
/// Operations are issued in order by one thread and may run asynchronously; `synchronize` waits. Activations are f32
/// unless `activation_type()` says otherwise; the residual stream and partial sums are always f32. Nothing is allocated
/// by an operation: work space is created by bind_* and prepare. Tensors are row-major; "x [rows, n]" means x.rows ==
/// rows and x.columns == n with any stride.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const DeviceInfo& info() const = 0;

  /// Makes the device the calling thread's own, where the device's runtime asks for that. Before its first operation in
  /// a thread.
  virtual void enter_thread() {}

  /// Element type of normalised activations and projections between operations (f32 on CPUs).
  virtual DType activation_type() const { return DType::f32; }

  /// Element type of KvLayer tensors.
  virtual DType cache_type() const { return DType::f32; }

  /// Columns of a row of such a layer's KvLayer tensors: kv_heads * head_dim, or more where heads carry a scale.
  virtual std::int64_t cache_columns(const Attention& layer) const {
    return std::int64_t{layer.kv_heads} * layer.head_dim;
  }

  /// Most rows of one step (BackendOptions::max_rows).
  virtual std::int64_t max_rows() const = 0;

  // Memory.

  /// Zeroed memory. Throws Error naming `what` when the device cannot give it.
  virtual std::unique_ptr<Buffer> allocate(std::size_t bytes, std::string_view what) = 0;
  /// Copies host bytes to the tensor's elements (rows packed on the host side).
  virtual void upload(const Tensor& to, const void* from) = 0;
  /// Copies the tensor's elements to the host, rows packed. Waits for the result.
  virtual void download(void* to, const Tensor& from) = 0;
  virtual void fill_zero(const Tensor& tensor) = 0;
  virtual void synchronize() {}

  // Weights: packed bytes stay packed.

  /// Binds linears that share an input. The views' bytes must stay mapped while the group lives unless the backend
  /// copied them
  /// (`keeps_views()`).
  virtual std::unique_ptr<LinearGroup> bind_linears(std::span<const LinearView> members) = 0;
  virtual std::unique_ptr<Moe> bind_moe(const MoeView& moe) = 0;
  virtual std::unique_ptr<Embedding> bind_embedding(const DenseView& table) = 0;
  /// Whether bound weights still read the mapped files (if not, the caller may release those pages).
  virtual bool keeps_views() const = 0;

  /// Creates the work space that steps of such a layer need. Called for every layer before the first step; layers of
  /// one shape share it.
  virtual void prepare(const Attention& layer) = 0;
  virtual void prepare(const DeltaNet& layer) = 0;

  /// What binding or preparing would take, from shapes alone: no view's bytes are read, and the tensors of a layer need
  /// no buffer. For memory plans.
  virtual Footprint footprint(std::span<const LinearView> members) const = 0;
  virtual Footprint footprint(const MoeView& moe) const = 0;
  virtual Footprint footprint(const DenseView& embedding) const = 0;
  virtual Footprint footprint(const Attention& layer) const = 0;
  virtual Footprint footprint(const DeltaNet& layer) const = 0;

  // Operations.

  /// out[r] = scale * table[ids[r]]; ids i32 [1, rows], out f32 [rows, hidden]. Ids were checked by the caller.
  virtual void embed(const Embedding& table, const Tensor& ids, float scale, const Tensor& out) = 0;

  /// out = norm(x); x f32 [rows, width], out [rows, width] of f32 or activation_type(); out may be x.
  virtual void rms_norm(const RmsNorm& norm, const Tensor& x, const Tensor& out) = 0;

  /// residual += delta, then out = norm(residual). residual f32, delta f32 or activation_type(), all [rows, width].
  virtual void add_rms_norm(const RmsNorm& norm, const Tensor& residual, const Tensor& delta, const Tensor& out) = 0;

  /// outs[i] = x W_i^T + bias_i for every member of the group; x [rows, in_features], outs[i] [rows, out_features(i)]
  /// of f32 or activation_type().
  virtual void linear(const LinearGroup& group, const Tensor& x, std::span<const Tensor> outs) = 0;

  /// out = the activation of gate and up (Activation), all [rows, width]; out may be gate.
  virtual void gated_activation(Activation activation, const Tensor& gate, const Tensor& up, const Tensor& out) = 0;

  /// Norms and rotates q and k, appends k and v to the cache, attends causally to every earlier token of the row's
  /// sequence (within the window, if the layer has one), applies the output gate. q [rows, heads * head_dim (* 2 if
  /// gated)], k and v [rows, kv_heads * head_dim], out [rows, heads * head_dim], all of activation_type(). q and k may
  /// be overwritten.
  virtual void attention(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v,
                         const KvLayer& cache, const Batch& batch, const Tensor& out) = 0;

  /// Causal convolution with SiLU, L2 norms, gates, delta rule, gated norm. qkv [rows, channels], z [rows, value_heads
  /// * value_dim], b and a [rows, value_heads], all f32; out [rows, value_heads * value_dim] of activation_type().
  /// Reads and writes the state of the batch's slots.
  virtual void delta_net(const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& a,
                         const DeltaNetState& state, const Batch& batch, const Tensor& out) = 0;

  /// Router, routed experts and shared expert: x [rows, hidden], out [rows, hidden] f32.
  virtual void moe(const Moe& moe, const Tensor& x, const Tensor& out) = 0;

  /// x = cap * tanh(x / cap); x f32 [rows, width].
  virtual void soft_cap(const Tensor& x, float cap) = 0;

  /// out[i] = x[indices[i]]; indices i32 [1, n], out [n, width].
  virtual void gather_rows(const Tensor& x, const Tensor& indices, const Tensor& out) = 0;
};

/// A backend by name ("cpu", "reference", "cuda", "opencl"). Throws Error for a name that is unknown, was not built, or
/// has no device here.
std::unique_ptr<Backend> open_backend(std::string_view name, const BackendOptions& options);

/// One line of `pergola devices`: a device that can be opened, or why a backend has none.
struct DeviceListing {
  std::string backend;
  std::string device;
  std::string note;  ///< instruction sets, memory; or why it is not there
  bool available = false;
};

std::vector<DeviceListing> list_devices();

}  // namespace pergola
