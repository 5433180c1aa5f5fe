#include "backend/cpu/cpu_backend.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "backend/cpu/attention.h"
#include "backend/cpu/context.h"
#include "backend/cpu/cpu_linear.h"
#include "backend/cpu/delta_net.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/moe.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/units.h"

namespace pergola {
namespace {

std::uint64_t physical_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) : 0;
}

/// The instruction set to use: the best of the processor, or what was asked for.
Isa chosen_isa(const std::string& wanted) {
  const CpuFeatures& features = cpu_features();
  if (wanted == "auto") return features.best;
  const std::optional<Isa> isa = isa_from_name(wanted);
  if (!isa) {
    fail({.field = "--isa"}, "'{}' is not an instruction set; choose auto, scalar, avx2, avx512 or amx", wanted);
  }
  if (*isa > features.best) {
    fail({.field = "--isa"}, "this processor ({}) does not have {}; its best is {}", features.model, wanted,
         name_of(features.best));
  }
  return *isa;
}

const FloatKernels& float_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return avx512_float_kernels();
  if (isa >= Isa::avx2) return avx2_float_kernels();
#endif
  return portable_float_kernels();
}

std::byte* row_bytes(const Tensor& tensor, std::int64_t row) {
  return static_cast<std::byte*>(tensor.buffer->address()) + tensor.offset +
         row * tensor.stride * static_cast<std::int64_t>(size_of(tensor.dtype));
}

std::size_t row_size(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.columns) * size_of(tensor.dtype);
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options)
      : isa_(chosen_isa(options.isa)),
        max_rows_(options.max_rows),
        exact_(options.precision == Precision::exact),
        pool_(options.threads > 0 ? options.threads : ThreadPool::available_processors(), options.pin_threads),
        table_(make_kernel_table(cpu_features(), isa_, options.precision)),
        work_(pool_.size()) {
    info_ = {.backend = "cpu",
             .name = cpu_features().model,
             .instruction_set = std::string(name_of(table_.isa)),
             .threads = pool_.size(),
             .memory_bytes = physical_memory(),
             .shares_host_memory = true};
  }

  const DeviceInfo& info() const override { return info_; }
  std::int64_t max_rows() const override { return max_rows_; }

  /// Half the memory and half the reading of f32; keys and values were computed from rounded weights anyway.
  DType cache_type() const override { return exact_ ? DType::f32 : DType::f16; }

  std::unique_ptr<Buffer> allocate(std::size_t bytes, std::string_view what) override {
    return std::make_unique<cpu::Memory>(bytes, what);
  }

  void upload(const Tensor& to, const void* from) override {
    const auto* source = static_cast<const std::byte*>(from);
    for (std::int64_t r = 0; r < to.rows; ++r, source += row_size(to)) {
      std::memcpy(row_bytes(to, r), source, row_size(to));
    }
  }

  void download(void* to, const Tensor& from) override {
    auto* target = static_cast<std::byte*>(to);
    for (std::int64_t r = 0; r < from.rows; ++r, target += row_size(from)) {
      std::memcpy(target, row_bytes(from, r), row_size(from));
    }
  }

  void fill_zero(const Tensor& tensor) override {
    for (std::int64_t r = 0; r < tensor.rows; ++r) std::memset(row_bytes(tensor, r), 0, row_size(tensor));
  }

  std::unique_ptr<LinearGroup> bind_linears(std::span<const LinearView> members) override {
    auto group = std::make_unique<CpuLinearGroup>(members, table_, max_rows_, arena_, pool_);
    work_.reserve(group->needs());
    return group;
  }

  std::unique_ptr<Moe> bind_moe(const MoeView& view) override {
    auto moe = std::make_unique<cpu::CpuMoe>(view, table_, max_rows_, arena_, pool_);
    work_.reserve(moe->needs());
    return moe;
  }

  std::unique_ptr<Embedding> bind_embedding(const DenseView& table) override {
    DenseView copy = table;
    std::byte* bytes = arena_.allocate(static_cast<std::int64_t>(table.bytes.size()));
    std::memcpy(bytes, table.bytes.data(), table.bytes.size());
    copy.bytes = {bytes, table.bytes.size()};
    return std::make_unique<cpu::CpuEmbedding>(copy);
  }

  bool keeps_views() const override { return false; }

  void prepare(const Attention& layer) override { work_.reserve(cpu::attention_needs(layer)); }
  void prepare(const DeltaNet& layer) override { work_.reserve(cpu::delta_net_needs(layer)); }

  Footprint footprint(std::span<const LinearView> members) const override {
    std::int64_t bytes = 0;
    for (const LinearView& member : members) bytes += packed_linear_bytes(member);
    return with_work(bytes, linear_work_needs(table_, members, max_rows_));
  }
  Footprint footprint(const MoeView& moe) const override {
    return with_work(cpu::moe_bytes(moe), cpu::moe_needs(moe, table_, max_rows_));
  }
  Footprint footprint(const DenseView& embedding) const override {
    return {static_cast<std::size_t>(embedding.rows * embedding.columns) * size_of(embedding.dtype), 0};
  }
  Footprint footprint(const Attention& layer) const override { return with_work(0, cpu::attention_needs(layer)); }
  Footprint footprint(const DeltaNet& layer) const override { return with_work(0, cpu::delta_net_needs(layer)); }

  void embed(const Embedding& table, const Tensor& ids, float scale, const Tensor& out) override {
    cpu::embed(context_, static_cast<const cpu::CpuEmbedding&>(table), ids, scale, out);
  }

  void rms_norm(const RmsNorm& norm, const Tensor& x, const Tensor& out) override {
    cpu::rms_norm(context_, norm, x, out);
  }

  void add_rms_norm(const RmsNorm& norm, const Tensor& residual, const Tensor& delta, const Tensor& out) override {
    cpu::add_rms_norm(context_, norm, residual, delta, out);
  }

  void linear(const LinearGroup& group, const Tensor& x, std::span<const Tensor> outs) override {
    static_cast<const CpuLinearGroup&>(group).multiply(table_, pool_, work_, x, outs);
  }

  void gated_activation(Activation activation, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    cpu::gated_activation(context_, activation, gate, up, out);
  }

  void attention(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& cache,
                 const Batch& batch, const Tensor& out) override {
    cpu::attention(context_, layer, q, k, v, cache, batch, out);
  }

  void delta_net(const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& a,
                 const DeltaNetState& state, const Batch& batch, const Tensor& out) override {
    cpu::delta_net(context_, layer, qkv, z, b, a, state, batch, out);
  }

  void moe(const Moe& moe, const Tensor& x, const Tensor& out) override {
    static_cast<const cpu::CpuMoe&>(moe).run(context_, table_, x, out);
  }

  void soft_cap(const Tensor& x, float cap) override { cpu::soft_cap(context_, x, cap); }

  void gather_rows(const Tensor& x, const Tensor& indices, const Tensor& out) override {
    cpu::gather_rows(context_, x, indices, out);
  }

 private:
  Footprint with_work(std::int64_t weights, const WorkNeeds& needs) const {
    return {static_cast<std::size_t>(weights),
            static_cast<std::size_t>(needs.shared + needs.per_thread * pool_.size())};
  }

  Isa isa_;
  std::int64_t max_rows_;
  bool exact_;
  DeviceInfo info_;
  ThreadPool pool_;
  KernelTable table_;
  WeightArena arena_;
  WorkSpace work_;
  cpu::Context context_{pool_, float_kernels(isa_), work_};
};

}  // namespace

std::unique_ptr<Backend> open_cpu_backend(const BackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

std::vector<DeviceListing> list_cpu_devices() {
  const CpuFeatures& features = cpu_features();
  std::string note = fmt::format("{}, {} processors, {}", name_of(features.best), ThreadPool::available_processors(),
                                 human_bytes(static_cast<double>(physical_memory())));
  return {{"cpu", features.model, std::move(note), true}};
}

}  // namespace pergola
