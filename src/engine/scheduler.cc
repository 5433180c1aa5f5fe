#include "engine/scheduler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <new>
#include <optional>

#include "base/error.h"

namespace pergola {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// log(sum(exp(logits))).
double log_sum_exp(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

std::string describe(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "out of memory" : error.what();
}

}  // namespace

struct Scheduler::Job {
  Ticket ticket;
  ServedRequest request;
  Sampler sampler;
  std::int64_t prompt_tokens;
  std::int64_t most;  // tokens of the answer
  std::optional<Sequence> sequence;
  std::int64_t cached_tokens = 0;
  std::int64_t answer_tokens = 0;
  bool begun = false;  // rows were computed, or taken from the prefix cache
  bool cancelled = false;
  bool ended = false;
  Clock::time_point submitted = Clock::now();
  Clock::time_point last_token{};

  // What is to be computed when it starts: the prompt, after a preemption with the answer so far.
  std::span<const std::int32_t> tokens() const { return request.generation.prompt; }
  bool writing() const { return sequence && answer_tokens > 0 && sequence->pending() == 1; }
};

Scheduler::Scheduler(Engine& engine, const SchedulerOptions& options)
    : engine_(engine),
      options_(options),
      budget_(engine.max_rows(), options.prefill_chunk),
      cache_(engine.pool(), engine.memory().checkpoints, engine.model_plan().state_bytes_per_slot > 0),
      logits_(static_cast<std::size_t>(engine.info().vocab_size)) {
  assert(engine.memory().logit_rows >= engine.memory().max_sequences);
  assert(engine.max_rows() >= engine.memory().max_sequences);
}

Scheduler::~Scheduler() {
  end_all();
}

void Scheduler::end_all() {
  for (const JobPointer& job : running_) end(*job, FinishReason::cancelled);
  for (const auto& [ticket, job] : waiting_) end(*job, FinishReason::cancelled);
  running_.clear();
  waiting_.clear();
}

void Scheduler::submit(Ticket ticket, ServedRequest request) {
  const auto prompt = static_cast<std::int64_t>(request.generation.prompt.size());
  const std::shared_ptr<RequestListener> listener = request.listener;
  try {
    const GenerationRequest& generation = request.generation;
    Sampler sampler(generation.sampling, engine_.info().vocab_size, generation.mask);
    sampler.begin(generation.prompt);
    const std::int64_t room = engine_.memory().context - prompt + 1;  // the last token needs no place in the cache
    const std::int64_t most = generation.max_tokens > 0 ? std::min(generation.max_tokens, room) : room;
    auto job = std::make_unique<Job>(Job{ticket, std::move(request), std::move(sampler), prompt, most});
    waiting_.emplace(ticket, std::move(job));
  } catch (const std::exception& error) {
    ++stats_.finished[static_cast<std::size_t>(FinishReason::failed)];
    listener->on_end({.finish = FinishReason::failed, .error = describe(error), .prompt_tokens = prompt});
  }
}

void Scheduler::cancel(Ticket ticket) {
  if (const auto found = waiting_.find(ticket); found != waiting_.end()) found->second->cancelled = true;
  for (const JobPointer& job : running_) job->cancelled = job->cancelled || job->ticket == ticket;
}

void Scheduler::end(Job& job, FinishReason reason, const std::string& error) {
  if (job.ended) return;
  job.ended = true;
  job.sequence.reset();
  ++stats_.finished[static_cast<std::size_t>(reason)];
  job.request.listener->on_end({.finish = reason,
                                .error = error,
                                .prompt_tokens = job.prompt_tokens,
                                .cached_tokens = job.cached_tokens,
                                .answer_tokens = job.answer_tokens});
}

void Scheduler::drop_cancelled() {
  for (auto entry = waiting_.begin(); entry != waiting_.end();) {
    if (entry->second->cancelled) {
      end(*entry->second, FinishReason::cancelled);
      entry = waiting_.erase(entry);
    } else {
      ++entry;
    }
  }
  for (const JobPointer& job : running_) {
    if (job->cancelled) end(*job, FinishReason::cancelled);
  }
  remove_ended();
}

void Scheduler::remove_ended() {
  std::erase_if(running_, [](const JobPointer& job) { return job->ended; });
}

bool Scheduler::may_start(const Job& job) const {
  if (running_.empty()) return true;
  if (engine_.pool().slots.available() == 0) return false;
  const std::int64_t page_size = engine_.pool().page_size;
  const auto missing = [&](std::int64_t tokens, std::int64_t held) {
    return std::max<std::int64_t>((tokens + page_size - 1) / page_size - held, 0);
  };
  std::int64_t wanted = missing(static_cast<std::int64_t>(job.tokens().size()) + 1, 0);
  for (const JobPointer& other : running_) {
    wanted += missing(other->sequence->length() + 1, static_cast<std::int64_t>(other->sequence->pages().size()));
  }
  return wanted <= engine_.pool().pages.available() + cache_.evictable();
}

void Scheduler::admit() {
  // Never past the head of the queue, so that no request starves.
  while (!waiting_.empty() && may_start(*waiting_.begin()->second)) {
    JobPointer job = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    start(std::move(job));
  }
}

void Scheduler::start(JobPointer job) {
  try {
    job->sequence.emplace(engine_.start());
    job->sequence->append(job->tokens());
  } catch (const std::exception& error) {
    return end(*job, FinishReason::failed, describe(error));
  }
  const auto place = std::ranges::upper_bound(running_, job->ticket, {}, &Job::ticket);
  running_.insert(place, std::move(job));
}

/// Whether an older request is on its way through pages that both begin with.
bool Scheduler::awaits_other(const Job& job) const {
  if (!cache_.can_keep()) return false;
  const std::int64_t page_size = engine_.pool().page_size;
  const std::span<const std::int32_t> mine = job.tokens().first(job.tokens().size() - 1);  // the last one is computed
  for (const JobPointer& other : running_) {
    if (other.get() == &job) return false;
    const auto theirs = other->sequence->tokens().first(static_cast<std::size_t>(other->prompt_tokens));
    const auto alike = std::ranges::mismatch(mine, theirs).in1 - mine.begin();
    if (alike / page_size * page_size > other->sequence->computed()) return true;
  }
  return false;
}

void Scheduler::adopt_prefix(Job& job) {
  const PrefixCache::Match match = cache_.find(job.tokens());
  if (match.tokens == 0) return;
  job.sequence->adopt(match.pages, match.tokens);
  const auto first_checkpoint = static_cast<std::int32_t>(engine_.memory().max_sequences);
  if (match.checkpoint) engine_.copy_state(first_checkpoint + *match.checkpoint, job.sequence->slot());
  if (job.answer_tokens > 0) return;  // it was preempted: its answer is no cached prompt
  job.cached_tokens = match.tokens;
  stats_.cached_tokens += static_cast<std::uint64_t>(match.tokens);
}

/// Makes a job ready for its first rows; false while it waits for another that computes the same beginning.
bool Scheduler::begin(Job& job) {
  if (options_.prefix_cache && !job.begun) {
    if (awaits_other(job)) return false;
    adopt_prefix(job);
  }
  job.begun = true;
  return true;
}

void Scheduler::preempt(std::size_t index) {
  const auto tokens = running_[index]->sequence->tokens();
  running_[index]->request.generation.prompt.assign(tokens.begin(), tokens.end());
  JobPointer job = std::move(running_[index]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  job->sequence.reset();
  job->begun = false;
  ++stats_.preemptions;
  waiting_.emplace(job->ticket, std::move(job));
}

/// Pages for the job's next rows; false when the job itself was preempted for want of them.
bool Scheduler::give_pages(Job& job, std::int64_t rows) {
  const std::int64_t tokens = job.sequence->computed() + rows;
  while (!job.sequence->reserve(tokens)) {
    if (cache_.evict(1) > 0) continue;
    const bool last = running_.back().get() == &job;
    // The pool holds a full context: whoever runs alone finds its pages.
    assert(!last || running_.size() > 1);
    preempt(running_.size() - 1);
    if (last) return false;
  }
  return true;
}

void Scheduler::compose() {
  parts_.clear();
  part_jobs_.clear();
  const std::int64_t writing = std::ranges::count_if(running_, [](const JobPointer& job) { return job->writing(); });
  std::int64_t budget = budget_.prefill_rows(writing);
  const std::int64_t page_size = engine_.pool().page_size;
  // Preemption takes from the end, so what was composed stays.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Job& job = *running_[i];
    if (!begin(job)) continue;
    const std::int64_t pending = job.sequence->pending();
    std::int64_t rows = 1;
    if (!job.writing()) {
      const std::int64_t border = page_size - job.sequence->computed() % page_size;
      rows = std::min({pending, budget, border});
      if (rows == 0) continue;
    }
    if (!give_pages(job, rows)) break;
    if (!job.writing()) budget -= rows;
    parts_.push_back({&*job.sequence, rows, rows == pending ? 1 : 0});
    part_jobs_.push_back(&job);
  }
}

bool Scheduler::step() {
  drop_cancelled();
  admit();
  if (running_.empty()) return false;
  try {
    compose();
    run();
  } catch (const std::exception& error) {
    // What a failed step left in the caches is unknown.
    for (const JobPointer& job : running_) end(*job, FinishReason::failed, describe(error));
  }
  remove_ended();
  return true;
}

void Scheduler::run() {
  std::int64_t writing = 0;
  std::int64_t prefill = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    (part_jobs_[i]->writing() ? writing : prefill) += parts_[i].rows;
  }
  const auto start = Clock::now();
  engine_.step(parts_);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (options_.prefix_cache) keep_prefix(*part_jobs_[i]);
    if (parts_[i].logit_rows > 0) sample(*part_jobs_[i], row++);
  }
  const double seconds = seconds_between(start, Clock::now());
  budget_.observe(writing, prefill, seconds);
  ++stats_.steps;
  stats_.prompt_tokens += static_cast<std::uint64_t>(prefill);
  stats_.step.add(seconds);
  stats_.step_rows.add(static_cast<double>(writing + prefill));
}

void Scheduler::keep_prefix(Job& job) {
  const Sequence& sequence = *job.sequence;
  const std::int64_t computed = sequence.computed();
  // Answers are not kept: their rows were computed by other kernels than a prompt's, and a hit must change no bit.
  if (computed % engine_.pool().page_size != 0 || computed > job.prompt_tokens) return;
  const auto checkpoint = cache_.insert(sequence.tokens().first(static_cast<std::size_t>(computed)), sequence.pages());
  if (!checkpoint) return;
  const auto first_checkpoint = static_cast<std::int32_t>(engine_.memory().max_sequences);
  engine_.copy_state(sequence.slot(), first_checkpoint + *checkpoint);
}

void Scheduler::sample(Job& job, std::int64_t row) {
  ServedRequest& request = job.request;
  SampledToken sampled;
  try {
    engine_.read_logits(row, logits_);
    double normalizer = 0;
    if (request.top_logprobs >= 0) {
      normalizer = log_sum_exp(logits_);
      raw_logits_ = logits_;
    }
    if (request.rule) request.rule->apply(logits_);
    sampled.token = job.sampler.sample(logits_);
    const auto& stops = request.generation.stop_tokens;
    sampled.is_stop = std::find(stops.begin(), stops.end(), sampled.token) != stops.end();
    if (request.rule && !sampled.is_stop) request.rule->accept(sampled.token);
    if (request.top_logprobs >= 0) {
      sampled.logprob = static_cast<float>(raw_logits_[static_cast<std::size_t>(sampled.token)] - normalizer);
      candidates_.resize(static_cast<std::size_t>(request.top_logprobs));
      if (!candidates_.empty()) select_largest(raw_logits_, candidates_);
      std::ranges::stable_sort(candidates_, std::greater<>(), &Candidate::logit);
      top_.clear();
      for (const Candidate& candidate : candidates_) {
        top_.push_back({candidate.token, static_cast<float>(candidate.logit - normalizer)});
      }
      sampled.top = top_;
    }
  } catch (const std::exception& error) {
    return end(job, FinishReason::failed, describe(error));
  }

  const auto now = Clock::now();
  if (sampled.is_stop) {
    request.listener->on_token(sampled);
    return end(job, FinishReason::stop_token);
  }
  if (job.answer_tokens == 0) {
    stats_.first_token.add(seconds_between(job.submitted, now));
  } else {
    stats_.between_tokens.add(seconds_between(job.last_token, now));
  }
  job.last_token = now;
  job.sampler.accept(sampled.token);
  ++job.answer_tokens;
  ++stats_.answer_tokens;
  if (!request.listener->on_token(sampled)) return end(job, FinishReason::listener);
  if (job.answer_tokens == job.most) {
    const bool asked = job.most == request.generation.max_tokens;
    return end(job, asked ? FinishReason::max_tokens : FinishReason::context_full);
  }
  job.sequence->append(sampled.token);
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats;
  read_stats(stats);
  return stats;
}

void Scheduler::read_stats(SchedulerStats& stats) const {
  stats = stats_;
  stats.waiting = static_cast<std::int64_t>(waiting_.size());
  stats.running = static_cast<std::int64_t>(running_.size());
  const CachePool& pool = engine_.pool();
  stats.pages_in_use = pool.pages.in_use();
  stats.pages_cached = cache_.pages();
  stats.pages = pool.pages.size();
  stats.slots_in_use = pool.slots.in_use();
  stats.slots = pool.slots.size();
}

}  // namespace pergola
