#include "model/rank_team.h"

#include "base/error.h"

namespace pergola {

RankTeam::RankTeam(int ranks, Tell tell) : tell_(std::move(tell)) {
  for (int rank = 1; rank < ranks; ++rank) threads_.emplace_back([this, rank] { serve(rank); });
}

RankTeam::~RankTeam() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void RankTeam::run(const std::function<void(int)>& work) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw Error(failure_);
    work_ = &work;
    busy_ = static_cast<int>(threads_.size());
    ++calls_;
    changed_.notify_all();
  }
  attempt(0, work);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return busy_ == 0; });
  if (!failure_.empty()) throw Error(failure_);
}

void RankTeam::attempt(int rank, const std::function<void(int)>& work) {
  std::string sentence;
  try {
    work(rank);
    return;
  } catch (const std::exception& error) {
    sentence = fmt::format("rank {} of {} failed: {}", rank, threads_.size() + 1, error.what());
  }
  {
    // Those that fail later only say that they waited for this one.
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = sentence;
  }
  tell_(rank, sentence);
}

void RankTeam::serve(int rank) {
  std::uint64_t done = 0;
  while (true) {
    const std::function<void(int)>* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return over_ || calls_ != done; });
      if (over_) return;
      done = calls_;
      work = work_;
    }
    attempt(rank, *work);
    const std::lock_guard lock(mutex_);
    --busy_;
    changed_.notify_all();
  }
}

}  // namespace pergola
