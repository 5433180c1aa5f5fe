#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "backend/opencl/check.h"
#include "backend/opencl/device_facts.h"
#include "backend/opencl/handles.h"
#include "backend/opencl/program_cache.h"

namespace pergola::opencl {

/// A kernel and the largest work-group that it may run with here.
struct Kernel {
  KernelHandle handle;
  std::size_t most_work_items = 0;
  std::string name;
};

/// Local memory of a work-group as a kernel argument.
struct LocalBytes {
  std::size_t bytes = 0;
};

/// Work-groups in each direction, and work-items of one.
struct Grid {
  std::array<std::size_t, 3> groups{1, 1, 1};
  std::array<std::size_t, 3> items{1, 1, 1};
};

/// What was asked of the device so far.
struct Counters {
  std::uint64_t launches = 0;
  std::uint64_t host_waits = 0;  ///< times the host waited for the device
};

/// One device: its queue, its compiled kernels, and the work space that all operations share.
class Device {
 public:
  /// Number `index` of find_devices. Throws Error when there is none or it cannot run the kernels. Built programs are
  /// kept in `cache`, by default in default_cache_folder(), except for PoCL: it keeps its own, and to ask it for a
  /// binary makes it compile every kernel for every size of work-group.
  explicit Device(int index, std::optional<ProgramCache> cache = std::nullopt);

  const DeviceFacts& facts() const { return facts_; }
  cl_context context() const { return context_.get(); }
  cl_command_queue queue() const { return queue_.get(); }

  /// The kernel `name` of a file of kernels/, built with `options`; compiled on first use or taken from disk.
  const Kernel& kernel(std::string_view file, std::string_view name, const std::string& options = "");

  /// Build options that every program gets: the special instructions which this device has and which gave the same bits
  /// as their plain twins when it was opened.
  const std::string& base_options() const { return base_options_; }
  /// Whether products may run on matrix units.
  bool has_matrix_units() const { return matrix_units_; }

  /// Enqueues a kernel with its arguments in order; it runs after everything enqueued before.
  template <typename... Arguments>
  void launch(const Kernel& kernel, const Grid& grid, const Arguments&... arguments) {
    cl_uint index = 0;
    (set(kernel, index++, arguments), ...);
    enqueue(kernel, grid);
  }

  /// Zeroed device memory. Throws Error naming `what`.
  Memory allocate(std::size_t bytes, std::string_view what);

  /// Waits until everything enqueued is done.
  void synchronize();
  void count_wait() { ++counters_.host_waits; }
  const Counters& counters() const { return counters_; }

  /// Makes the shared work space at least `bytes` large. Only while weights are bound.
  void reserve_work(std::size_t bytes);
  cl_mem work() const { return work_.get(); }

 private:
  template <typename T>
  void set(const Kernel& kernel, cl_uint index, const T& value) {
    if constexpr (std::is_same_v<T, LocalBytes>)
      check_argument(clSetKernelArg(kernel.handle.get(), index, value.bytes, nullptr), kernel, index);
    else
      check_argument(clSetKernelArg(kernel.handle.get(), index, sizeof value, &value), kernel, index);
  }
  static void check_argument(cl_int code, const Kernel& kernel, cl_uint index);
  void enqueue(const Kernel& kernel, const Grid& grid);
  Program build(std::string_view file, const std::string& options);
  void probe_special_instructions();

  DeviceFacts facts_;
  Context context_;
  Queue queue_;
  ProgramCache cache_;
  std::map<std::string, Program> programs_;  ///< by file and options
  std::map<std::string, Kernel> kernels_;    ///< by file, options and name
  std::size_t work_bytes_ = 0;
  Memory work_;
  std::string base_options_;
  bool matrix_units_ = false;
  Counters counters_;
};

}  // namespace pergola::opencl
