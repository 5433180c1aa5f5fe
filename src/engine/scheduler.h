#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/histogram.h"
#include "engine/prefix_cache.h"
#include "engine/served_request.h"
#include "engine/step_budget.h"

namespace pergola {

struct SchedulerOptions {
  std::int64_t prefill_chunk = 0;  ///< tokens of prompts in a step beside running streams; 0: adapt (StepBudget)
  bool prefix_cache = true;
};

/// What a scheduler is doing and has done. Times in seconds.
struct SchedulerStats {
  std::int64_t waiting = 0;
  std::int64_t running = 0;
  std::int64_t pages_in_use = 0;  ///< by sequences and by the prefix cache
  std::int64_t pages_cached = 0;  ///< in the prefix cache, shared or not
  std::int64_t pages = 0;
  std::int64_t slots_in_use = 0;
  std::int64_t slots = 0;
  std::uint64_t steps = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t prompt_tokens = 0;  ///< computed, again after a preemption
  std::uint64_t cached_tokens = 0;  ///< of prompts, taken from the prefix cache
  std::uint64_t answer_tokens = 0;
  std::array<std::uint64_t, kFinishReasons> finished{};                               ///< by FinishReason
  Histogram first_token{{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}};  ///< from submit
  Histogram between_tokens{{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1}};
  Histogram step{{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1}};
  Histogram step_rows{{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}};
};

/// Continuous batching: every step computes the next token of each sequence that writes and, with what the budget
/// leaves, pieces of the prompts of others, the oldest request first. Pieces end at page borders, where the prefix
/// cache keeps states; so a prompt is cut alike with and without a hit.
///
/// Of requests that begin alike at the same time (n answers to one prompt) the oldest computes the pages that they
/// share; the others take them from the prefix cache then.
///
/// A request starts when a slot is free and the pages of its prompt are in sight; none overtakes another. When pages
/// run out, unshared pages of the prefix cache go first, then the youngest request gives its memory back and is
/// computed again later. The pool holds at least one full context, so the oldest request always gets on.
///
/// One thread at a time.
class Scheduler {
 public:
  Scheduler(Engine& engine, const SchedulerOptions& options);
  ~Scheduler();  ///< as end_all
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Queues a request that check_prompt and validate (of its sampling) found good. Tickets ascend.
  void submit(Ticket ticket, ServedRequest request);

  /// Ends a request at the start of the next step. Unknown and ended tickets are ignored.
  void cancel(Ticket ticket);

  /// One step. False when there was nothing to compute.
  bool step();

  /// Ends every request as cancelled.
  void end_all();

  bool idle() const { return waiting_.empty() && running_.empty(); }
  SchedulerStats stats() const;
  /// The same into an object that is used again and again: allocates nothing then.
  void read_stats(SchedulerStats& to) const;

 private:
  struct Job;
  using JobPointer = std::unique_ptr<Job>;

  void drop_cancelled();
  void admit();
  bool may_start(const Job& job) const;
  void start(JobPointer job);
  bool begin(Job& job);
  bool awaits_other(const Job& job) const;
  void adopt_prefix(Job& job);
  void compose();
  bool give_pages(Job& job, std::int64_t rows);
  void preempt(std::size_t running);
  void run();
  void keep_prefix(Job& job);
  void sample(Job& job, std::int64_t row);
  void end(Job& job, FinishReason reason, const std::string& error = {});
  void remove_ended();

  Engine& engine_;
  SchedulerOptions options_;
  StepBudget budget_;
  PrefixCache cache_;
  std::map<Ticket, JobPointer> waiting_;
  std::vector<JobPointer> running_;  ///< in the order of their tickets
  std::vector<StepPart> parts_;
  std::vector<Job*> part_jobs_;
  std::vector<float> logits_;
  std::vector<float> raw_logits_;  ///< as the model gave them, for logprobs
  std::vector<TokenLogprob> top_;
  std::vector<Candidate> candidates_;
  SchedulerStats stats_;
};

}  // namespace pergola
