#include "backend/cuda/nccl_communicator.h"

#if !__has_include(<nccl.h>)

namespace pergola::cuda {

std::vector<std::unique_ptr<Communicator>> nccl_communicators(std::span<Device* const>) {
  return {};
}

}  // namespace pergola::cuda

#else

#include <dlfcn.h>
#include <nccl.h>

#include <atomic>
#include <cassert>
#include <cstdlib>
#include <mutex>

#include "base/error.h"

namespace pergola::cuda {

namespace {

/// NCCL's functions, from the library at run time.
struct Nccl {
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclCommInitAll) init_all = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;

  /// Null where the library is not there.
  static const Nccl* load() {
    static const Nccl* const loaded = open();
    return loaded;
  }

  void check(ncclResult_t result, const char* doing) const {
    if (result != ncclSuccess) fail({.field = "--gpus"}, "NCCL failed while {}: {}", doing, error_string(result));
  }

 private:
  static const Nccl* open() {
    void* const handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return nullptr;
    static Nccl nccl;
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      all = all && function != nullptr;
    };
    find(nccl.error_string, "ncclGetErrorString");
    find(nccl.init_all, "ncclCommInitAll");
    find(nccl.destroy, "ncclCommDestroy");
    find(nccl.abort, "ncclCommAbort");
    find(nccl.all_reduce, "ncclAllReduce");
    find(nccl.reduce, "ncclReduce");
    find(nccl.broadcast, "ncclBroadcast");
    find(nccl.group_start, "ncclGroupStart");
    find(nccl.group_end, "ncclGroupEnd");
    return all ? &nccl : nullptr;
  }
};

/// The ranks' handles. Whoever aborts ends all of them: kernels that wait for a rank return.
class Group {
 public:
  Group(const Nccl& nccl, std::span<Device* const> devices) : nccl_(nccl), handles_(devices.size()) {
    std::vector<int> indices;
    for (const Device* device : devices) indices.push_back(device->index());
    nccl.check(nccl.init_all(handles_.data(), static_cast<int>(indices.size()), indices.data()), "starting");
  }
  ~Group() {
    if (aborted_) return;
    for (ncclComm_t handle : handles_) nccl_.destroy(handle);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  ncclComm_t handle(int rank) {
    if (aborted_) {
      const std::lock_guard lock(mutex_);
      throw Error(reason_);
    }
    return handles_[static_cast<std::size_t>(rank)];
  }
  int ranks() const { return static_cast<int>(handles_.size()); }

  void abort(std::string_view sentence) {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    reason_ = sentence;
    aborted_ = true;
    for (ncclComm_t handle : handles_) nccl_.abort(handle);
  }

 private:
  const Nccl& nccl_;
  std::vector<ncclComm_t> handles_;
  std::mutex mutex_;
  std::string reason_;
  std::atomic<bool> aborted_ = false;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const Nccl& nccl, std::shared_ptr<Group> group, int rank, Device& device)
      : nccl_(nccl), group_(std::move(group)), rank_(rank), device_(device) {}

  int rank() const override { return rank_; }
  int ranks() const override { return group_->ranks(); }

  void all_reduce(const Tensor& x) override {
    assert(x.dtype == DType::f32 && (x.stride == x.columns || x.rows <= 1));
    nccl_.check(nccl_.all_reduce(x.data<float>(), x.data<float>(), count_of(x), ncclFloat32, ncclSum,
                                 group_->handle(rank_), device_.stream()),
                "adding over the GPUs");
  }

  void reduce_scatter(const Tensor& x, std::span<const IndexRange> shares, const Tensor& out) override {
    assert(x.stride == x.columns && out.stride == out.columns);
    grouped("adding over the GPUs", [&] {
      for (int root = 0; root < ranks(); ++root) {
        const IndexRange rows = shares[static_cast<std::size_t>(root)];
        if (rows.count == 0) continue;
        nccl_.check(nccl_.reduce(x.row<float>(rows.first), root == rank_ ? out.data<float>() : nullptr,
                                 static_cast<std::size_t>(rows.count * x.columns), ncclFloat32, ncclSum, root,
                                 group_->handle(rank_), device_.stream()),
                    "adding over the GPUs");
      }
    });
  }

  /// Row by row: a rank's columns of several rows do not lie in one piece.
  void all_gather(const Tensor& x, std::span<const IndexRange> shares) override {
    grouped("gathering over the GPUs", [&] {
      for (std::int64_t row = 0; row < x.rows; ++row) {
        for (int root = 0; root < ranks(); ++root) {
          const IndexRange columns = shares[static_cast<std::size_t>(root)];
          send(x.row<float>(row) + columns.first, static_cast<std::size_t>(columns.count) * sizeof(float), root);
        }
      }
    });
  }

  void broadcast(std::span<const Tensor> tensors, int root) override {
    grouped("telling the GPUs of a step", [&] {
      for (const Tensor& tensor : tensors) {
        const std::size_t row = static_cast<std::size_t>(tensor.columns) * size_of(tensor.dtype);
        std::byte* data = static_cast<std::byte*>(tensor.buffer->address()) + tensor.offset;
        const std::size_t stride = static_cast<std::size_t>(tensor.stride) * size_of(tensor.dtype);
        for (std::int64_t i = 0; i < tensor.rows; ++i, data += stride) send(data, row, root);
      }
    });
  }

  void abort(std::string_view sentence) override { group_->abort(sentence); }

 private:
  static std::size_t count_of(const Tensor& x) { return static_cast<std::size_t>(x.rows * x.columns); }

  void send(void* data, std::size_t bytes, int root) {
    nccl_.check(nccl_.broadcast(data, data, bytes, ncclInt8, root, group_->handle(rank_), device_.stream()),
                "talking over the GPUs");
  }

  template <typename Work>
  void grouped(const char* doing, const Work& work) {
    nccl_.check(nccl_.group_start(), doing);
    work();
    nccl_.check(nccl_.group_end(), doing);
  }

  const Nccl& nccl_;
  std::shared_ptr<Group> group_;
  int rank_;
  Device& device_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> nccl_communicators(std::span<Device* const> devices) {
  const Nccl* const nccl = Nccl::load();
  if (nccl == nullptr || devices.size() < 2) return {};
  // Multicast over NVLink needs rights that containers often lack, and hangs where they are missing.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  const auto group = std::make_shared<Group>(*nccl, devices);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    communicators.push_back(std::make_unique<NcclCommunicator>(*nccl, group, static_cast<int>(rank), *devices[rank]));
  return communicators;
}

}  // namespace pergola::cuda

#endif
