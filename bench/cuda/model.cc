// A whole model on the CUDA backend: logits against stored ones for several ways to cut the prompt, then the speed of
// plain decode steps.
//   cuda_model FOLDER [--logits LOGITS.safetensors] [--max-rows N] [--prompts A,B,..] [--rows A,B,..]
#include <cuda_profiler_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "backend/recording.h"
#include "format/checkpoint.h"
#include "format/tensor_values.h"
#include "model/model.h"
#include "support/model_runner.h"

namespace {

using namespace pergola;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Prints KL(reference || ours) over all positions.
void print_distance(const char* label, const std::vector<float>& reference, const std::vector<float>& ours,
                    std::size_t vocab) {
  std::vector<double> divergences;
  std::size_t same = 0;
  const auto log_sum = [&](const float* x) {
    const double largest = *std::max_element(x, x + vocab);
    double sum = 0;
    for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(x[i] - largest);
    return largest + std::log(sum);
  };
  for (std::size_t start = 0; start < reference.size(); start += vocab) {
    const float* p = reference.data() + start;
    const float* q = ours.data() + start;
    const double norm_p = log_sum(p), norm_q = log_sum(q);
    double kl = 0;
    for (std::size_t i = 0; i < vocab; ++i) kl += std::exp(p[i] - norm_p) * ((p[i] - norm_p) - (q[i] - norm_q));
    divergences.push_back(kl);
    same += std::max_element(p, p + vocab) - p == std::max_element(q, q + vocab) - q ? 1 : 0;
  }
  double mean = 0;
  for (const double kl : divergences) mean += kl / static_cast<double>(divergences.size());
  std::sort(divergences.begin(), divergences.end());
  std::printf("  %-12s KL mean %.3g median %.3g max %.3g top-1 %.2f %%\n", label, mean,
              divergences[divergences.size() / 2], divergences.back(),
              100.0 * static_cast<double>(same) / static_cast<double>(divergences.size()));
  std::fflush(stdout);
}

void compare(Model& model, Backend& backend, const char* logits_file) {
  const TensorTable stored({logits_file});
  const TensorEntry& ids = *stored.find("input_ids");
  const TensorEntry& logits = *stored.find("logits");
  const std::int64_t sequences = ids.shape[0], length = ids.shape[1], vocab = logits.shape[2];
  std::vector<float> first;
  for (const std::int64_t chunk : {256, 100, 40, 16, 8, 5, 3, 1}) {
    testing::ModelRunner runner(model, backend, 1, length);
    std::vector<float> expected, actual;
    for (std::int64_t s = 0; s < sequences; ++s) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
      std::memcpy(tokens.data(), ids.bytes.data() + s * length * 4, tokens.size() * 4);
      runner.reset(0);
      const std::vector<float> ours = runner.sequence(0, tokens, chunk);
      actual.insert(actual.end(), ours.begin(), ours.end());
      const std::size_t at = static_cast<std::size_t>(s * length * vocab) * size_of(logits.dtype);
      const std::size_t count = static_cast<std::size_t>(length * vocab);
      const std::vector<float> part = to_floats(
          {logits.dtype, 1, static_cast<std::int64_t>(count), logits.bytes.subspan(at, count * size_of(logits.dtype))});
      expected.insert(expected.end(), part.begin(), part.end());
    }
    char label[32];
    std::snprintf(label, sizeof label, "chunks %lld", static_cast<long long>(chunk));
    print_distance(label, expected, actual, static_cast<std::size_t>(vocab));
    if (first.empty()) first = actual;
    if (chunk == 1) {
      runner.reset(0);
      std::vector<float> again;
      for (std::int64_t s = 0; s < sequences; ++s) {
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
        std::memcpy(tokens.data(), ids.bytes.data() + s * length * 4, tokens.size() * 4);
        runner.reset(0);
        const std::vector<float> ours = runner.sequence(0, tokens, 1);
        again.insert(again.end(), ours.begin(), ours.end());
      }
      std::printf("  again: %s\n",
                  std::memcmp(again.data(), actual.data(), again.size() * 4) == 0 ? "equal to the bit" : "DIFFERENT");
    }
  }
}

/// A decode step of `rows` sequences whose inputs stay where they are, so that it can be recorded.
class DecodeStep {
 public:
  DecodeStep(Model& model, Backend& backend, std::int64_t rows, std::int64_t positions)
      : model_(model), backend_(backend), rows_(rows) {
    constexpr std::int64_t kPage = 16;
    const std::int64_t pages = (positions + kPage - 1) / kPage;
    model.allocate_caches({.pages = rows * pages, .page_size = kPage, .slots = rows});
    std::vector<std::int32_t> ramp(static_cast<std::size_t>(rows + 1)), table(static_cast<std::size_t>(rows * pages));
    for (std::size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<std::int32_t>(i);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::int32_t>(table.size() - 1 - i);
    batch_ = {rows, rows, 1};
    batch_.tokens = ints(ramp, 1, rows);
    batch_.positions = ints(ramp, 1, rows);
    batch_.row_sequence = ints(ramp, 1, rows);
    batch_.row_start = ints(ramp, 1, rows + 1);
    batch_.slots = ints(ramp, 1, rows);
    batch_.page_table = ints(table, rows, pages);
    logit_rows_ = ints(ramp, 1, rows);
    const std::int64_t vocab = model.info().vocab_size;
    buffers_.push_back(backend.allocate(static_cast<std::size_t>(rows * vocab) * 4, "logits"));
    logits_ = {buffers_.back().get(), 0, DType::f32, rows, vocab, vocab};
  }

  void set(std::int32_t token, std::int32_t position) {
    backend_.upload(batch_.tokens, std::vector<std::int32_t>(static_cast<std::size_t>(rows_), token).data());
    backend_.upload(batch_.positions, std::vector<std::int32_t>(static_cast<std::size_t>(rows_), position).data());
  }
  void forget() {
    for (std::int64_t i = 0; i < rows_; ++i) model_.reset_slot(i);
  }
  void run() { model_.forward(batch_, logit_rows_, logits_); }
  std::vector<float> logits() {
    std::vector<float> values(static_cast<std::size_t>(logits_.rows * logits_.columns));
    backend_.download(values.data(), logits_);
    return values;
  }

 private:
  Tensor ints(const std::vector<std::int32_t>& values, std::int64_t rows, std::int64_t columns) {
    buffers_.push_back(backend_.allocate(values.size() * 4, "a step's inputs"));
    const Tensor tensor{buffers_.back().get(), 0, DType::i32, rows, columns, columns};
    backend_.upload(tensor, values.data());
    return tensor;
  }

  Model& model_;
  Backend& backend_;
  std::int64_t rows_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  Batch batch_;
  Tensor logit_rows_, logits_;
};

/// Recorded decode steps: equal to eager ones to the bit? And how fast, with so many (empty) tokens before them?
void recorded_decode(Model& model, Backend& backend, std::int64_t rows, std::int64_t context) {
  DecodeStep step(model, backend, rows, context + 1024);
  // The recording is the first use of this batch size.
  const std::unique_ptr<RecordedStep> recorded = dynamic_cast<StepRecorder&>(backend).record([&] { step.run(); });
  constexpr int kCheck = 24;
  std::vector<float> eager, replayed;
  step.forget();
  for (int i = 0; i < kCheck; ++i) {
    step.set(7 * i + 3, i);
    recorded->replay();
    const std::vector<float> values = step.logits();
    replayed.insert(replayed.end(), values.begin(), values.end());
  }
  step.forget();
  for (int i = 0; i < kCheck; ++i) {
    step.set(7 * i + 3, i);
    step.run();
    const std::vector<float> values = step.logits();
    eager.insert(eager.end(), values.begin(), values.end());
  }
  const bool equal = std::memcmp(eager.data(), replayed.data(), eager.size() * 4) == 0;
  std::vector<double> times;
  for (int repeat = 0; repeat < 5; ++repeat) {
    step.forget();
    backend.synchronize();
    const auto start = std::chrono::steady_clock::now();
    constexpr int kSteps = 100;
    for (int i = 0; i < kSteps; ++i) {
      step.set(i, static_cast<std::int32_t>(context + i));
      recorded->replay();
    }
    backend.synchronize();
    times.push_back(seconds_since(start) / kSteps);
  }
  std::sort(times.begin(), times.end());
  std::printf("  recorded decode, %lld rows, context %lld: %s; %.3f ms a step, %.1f tokens/s\n",
              static_cast<long long>(rows), static_cast<long long>(context),
              equal ? "equal to eager to the bit" : "DIFFERS from eager", times[2] * 1e3,
              static_cast<double>(rows) / times[2]);
  std::fflush(stdout);
}

/// One sequence fed in pieces of up to max_rows tokens, inputs allocated beforehand.
class Prefill {
 public:
  Prefill(Model& model, Backend& backend, std::int64_t tokens) : model_(model), backend_(backend), tokens_(tokens) {
    constexpr std::int64_t kPage = 256;
    const std::int64_t pages = (tokens + kPage - 1) / kPage, rows = std::min(tokens, backend.max_rows());
    model.allocate_caches({.pages = pages, .page_size = kPage, .slots = 1});
    ids_.resize(static_cast<std::size_t>(tokens));
    std::uint32_t seed = 1;
    for (auto& id : ids_)
      id = static_cast<std::int32_t>(((seed = seed * 1664525u + 1013904223u) >> 8) %
                                     static_cast<std::uint32_t>(model.info().vocab_size));
    ramp_.resize(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < ramp_.size(); ++i) ramp_[i] = static_cast<std::int32_t>(i);
    batch_.sequences = 1;
    batch_.tokens = ints(rows);
    batch_.positions = ints(rows);
    batch_.row_sequence = ints(rows);
    batch_.row_start = ints(2);
    batch_.slots = ints(1);
    batch_.page_table = ints(pages);
    backend.upload(batch_.page_table, ramp_.data());
  }

  void run() {
    model_.reset_slot(0);
    for (std::int64_t at = 0; at < tokens_; at += backend_.max_rows()) {
      const std::int64_t rows = std::min(backend_.max_rows(), tokens_ - at);
      Batch batch = batch_;
      batch.rows = batch.max_rows_per_sequence = rows;
      for (Tensor* tensor : {&batch.tokens, &batch.positions, &batch.row_sequence}) tensor->columns = rows;
      const std::int32_t start[2] = {0, static_cast<std::int32_t>(rows)};
      backend_.upload(batch.tokens, ids_.data() + at);
      backend_.upload(batch.positions, ramp_.data() + at);
      backend_.upload(batch.row_start, start);
      model_.forward(batch, {}, {});
    }
    issued_ = std::chrono::steady_clock::now();
    backend_.synchronize();
  }

  /// When the last run's operations had all been issued.
  std::chrono::steady_clock::time_point issued() const { return issued_; }

 private:
  Tensor ints(std::int64_t columns) {
    buffers_.push_back(backend_.allocate(static_cast<std::size_t>(columns) * 4, "a step's inputs"));
    return {buffers_.back().get(), 0, DType::i32, 1, columns, columns};
  }

  Model& model_;
  Backend& backend_;
  std::int64_t tokens_;
  std::chrono::steady_clock::time_point issued_;
  std::vector<std::int32_t> ids_, ramp_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  Batch batch_;
};

void time_prefill(Model& model, Backend& backend, std::int64_t prompt) {
  Prefill prefill(model, backend, prompt);
  std::vector<double> times, issue_times;
  for (int repeat = 0; repeat < 6; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    prefill.run();
    if (repeat == 0) continue;
    times.push_back(seconds_since(start));
    issue_times.push_back(std::chrono::duration<double>(prefill.issued() - start).count());
  }
  std::sort(times.begin(), times.end());
  std::sort(issue_times.begin(), issue_times.end());
  std::printf("  prefill %lld: %.0f tokens/s, %.2f ms (%.2f ms to issue)\n", static_cast<long long>(prompt),
              static_cast<double>(prompt) / times[times.size() / 2], times[times.size() / 2] * 1e3,
              issue_times[issue_times.size() / 2] * 1e3);
  std::fflush(stdout);
}

/// One eager decode step and one prefill between profiler marks (ncu --profile-from-start off).
void profile(Model& model, Backend& backend, std::int64_t rows, std::int64_t prompt) {
  if (rows > 0) {
    DecodeStep step(model, backend, rows, 1024);
    for (int i = 0; i < 3; ++i) {
      step.set(7 * i + 3, i);
      backend.synchronize();
      if (i == 2) cudaProfilerStart();
      step.run();
      backend.synchronize();
      if (i == 2) cudaProfilerStop();
    }
  }
  if (prompt > 0) {
    Prefill prefill(model, backend, prompt);
    for (int i = 0; i < 2; ++i) {
      if (i == 1) cudaProfilerStart();
      prefill.run();
      if (i == 1) cudaProfilerStop();
    }
  }
}

int usage() {
  std::printf(
      "cuda_model FOLDER [--logits FILE] [--max-rows N] [--prompts A,B,..] [--rows A,B,..] [--context N] [--profile "
      "ROWS,PROMPT]\n");
  return 2;
}

std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> list;
  for (std::size_t at = 0; at < text.size();
       at = text.find(',', at) == std::string::npos ? text.size() : text.find(',', at) + 1)
    list.push_back(std::atoll(text.c_str() + at));
  return list;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return usage();
  const char* logits = nullptr;
  std::int64_t max_rows = 2048, context = 0;
  std::vector<std::int64_t> prompts{512, 1024, 2048, 4096}, rows{1, 2, 4, 8, 16, 32}, profiled;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--logits")
      logits = argv[i + 1];
    else if (option == "--max-rows")
      max_rows = std::atoll(argv[i + 1]);
    else if (option == "--context")
      context = std::atoll(argv[i + 1]);
    else if (option == "--prompts")
      prompts = numbers(argv[i + 1]);
    else if (option == "--rows")
      rows = numbers(argv[i + 1]);
    else if (option == "--profile")
      profiled = numbers(argv[i + 1]);
    else
      return usage();
  }
  try {
    const Checkpoint checkpoint(argv[1]);
    const std::unique_ptr<Backend> backend = open_backend("cuda", {.max_rows = max_rows});
    const auto start = std::chrono::steady_clock::now();
    const std::unique_ptr<Model> model = Model::load(checkpoint, *backend);
    backend->synchronize();
    std::printf("%s on %s: loaded in %.2f s\n", argv[1], backend->info().name.c_str(), seconds_since(start));
    std::fflush(stdout);
    if (profiled.size() == 2) {
      profile(*model, *backend, profiled[0], profiled[1]);
      return 0;
    }
    for (const std::int64_t count : rows) recorded_decode(*model, *backend, count, context);
    if (logits != nullptr) compare(*model, *backend, logits);
    for (const std::int64_t prompt : prompts) time_prefill(*model, *backend, prompt);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}
