#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace pergola {

/// A fixed team of threads for fork-join work. The calling thread is member 0 and takes part. Between calls members
/// wait shortly in a spin (a decode step forks some hundred times), then sleep: an idle pool uses no processor time.
class ThreadPool {
 public:
  /// `threads` >= 1; `pin` binds member i to the i-th processor that the process may use, the calling thread (member
  /// 0) for as long as the pool lives.
  explicit ThreadPool(int threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  /// Calls `work(index, member)` once for every index in [0, count), on any member in any order; returns when all are
  /// done. The first exception that a call throws is thrown again here. Not reentrant; one caller at a time; allocates
  /// nothing.
  template <typename Work>
  void parallel_for(std::int64_t count, Work&& work) {
    using Callable = std::remove_reference_t<Work>;
    run(
        count, [](void* context, std::int64_t index, int member) { (*static_cast<Callable*>(context))(index, member); },
        const_cast<void*>(static_cast<const void*>(&work)));
  }

  /// Processors that this process may run on, at least 1.
  static int available_processors();

 private:
  using Invoke = void (*)(void* context, std::int64_t index, int member);
  struct State;

  void run(std::int64_t count, Invoke invoke, void* context);

  std::unique_ptr<State> state_;
};

}  // namespace pergola
