#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace pergola {

/// One thread a rank, rank 0 being the caller's. When the work of a rank throws, `tell` is called at once with a
/// sentence about it, so that the others stop waiting for that rank; then `run` throws Error with this sentence, and so
/// does every later call.
class RankTeam {
 public:
  using Tell = std::function<void(int rank, const std::string& sentence)>;

  RankTeam(int ranks, Tell tell);
  ~RankTeam();
  RankTeam(const RankTeam&) = delete;
  RankTeam& operator=(const RankTeam&) = delete;

  /// Calls work(rank) for every rank, each in its thread, and waits for all.
  void run(const std::function<void(int)>& work);

 private:
  void serve(int rank);
  void attempt(int rank, const std::function<void(int)>& work);

  Tell tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(int)>* work_ = nullptr;
  std::uint64_t calls_ = 0;
  int busy_ = 0;
  bool over_ = false;
  std::string failure_;  ///< the first; empty: none
  std::vector<std::thread> threads_;
};

}  // namespace pergola
