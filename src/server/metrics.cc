#include "server/metrics.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace pergola {
namespace {

/// Names of FinishReason, in its order.
constexpr std::array<std::string_view, kFinishReasons> kReasons{"stop_token", "max_tokens",  "context_full",
                                                                "cancelled",  "stop_string", "failed"};

class Text {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    text_ += fmt::format("# HELP pergola_{} {}\n# TYPE pergola_{} {}\n", name, help, name, type);
  }
  template <typename Value>
  void value(std::string_view name, Value value) {
    text_ += fmt::format("pergola_{} {}\n", name, value);
  }
  template <typename Value>
  void single(std::string_view name, std::string_view type, std::string_view help, Value number) {
    family(name, type, help);
    value(name, number);
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
    family(name, "histogram", help);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < histogram.bounds().size(); ++i) {
      sum += histogram.counts()[i];
      value(fmt::format("{}_bucket{{le=\"{}\"}}", name, histogram.bounds()[i]), sum);
    }
    sum += histogram.counts().back();
    value(fmt::format("{}_bucket{{le=\"+Inf\"}}", name), sum);
    value(fmt::format("{}_sum", name), histogram.sum());
    value(fmt::format("{}_count", name), sum);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

void RequestCounter::count(int status) {
  const std::lock_guard lock(mutex_);
  ++counts_[status];
}

std::map<int, std::uint64_t> RequestCounter::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::string metrics_text(const SchedulerStats& stats, const std::map<int, std::uint64_t>& requests_by_status) {
  Text text;
  text.family("http_requests_total", "counter",
              "Requests by the status they got; 200 also where the answer came later");
  for (const auto& [status, count] : requests_by_status) {
    text.value(fmt::format("http_requests_total{{status=\"{}\"}}", status), count);
  }
  text.single("requests_waiting", "gauge", "Requests in the queue", stats.waiting);
  text.single("requests_running", "gauge", "Requests that hold a slot", stats.running);
  text.single("slots", "gauge", "Requests that can run at a time", stats.slots);
  text.single("slots_in_use", "gauge", "Recurrent-state slots in use", stats.slots_in_use);
  text.single("kv_pages", "gauge", "Pages of the KV cache", stats.pages);
  text.single("kv_pages_in_use", "gauge", "Pages in use by requests or the prefix cache", stats.pages_in_use);
  text.single("kv_pages_cached", "gauge", "Pages in the prefix cache, shared with requests or not", stats.pages_cached);
  text.single("steps_total", "counter", "Steps of the engine", stats.steps);
  text.single("preemptions_total", "counter", "Requests that had to give their memory back for a while",
              stats.preemptions);
  text.single("prompt_tokens_total", "counter", "Prompt tokens computed", stats.prompt_tokens);
  text.single("cached_prompt_tokens_total", "counter", "Prompt tokens taken from the prefix cache",
              stats.cached_tokens);
  text.single("answer_tokens_total", "counter", "Tokens written", stats.answer_tokens);
  text.family("requests_finished_total", "counter", "Answers by how they ended");
  for (std::size_t i = 0; i < kReasons.size(); ++i) {
    text.value(fmt::format("requests_finished_total{{reason=\"{}\"}}", kReasons[i]), stats.finished[i]);
  }
  text.histogram("time_to_first_token_seconds", "From a request's arrival to its first token", stats.first_token);
  text.histogram("inter_token_seconds", "Between two tokens of an answer", stats.between_tokens);
  text.histogram("step_seconds", "Duration of a step", stats.step);
  text.histogram("step_rows", "Tokens computed in a step", stats.step_rows);
  return text.take();
}

}  // namespace pergola
