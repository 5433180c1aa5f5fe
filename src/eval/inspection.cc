#include "eval/inspection.h"

#include <algorithm>

#include "base/error.h"
#include "format/generation_config.h"
#include "model/architectures.h"
#include "model/stored_spans.h"

namespace pergola {
namespace {

/// Runs `check` and keeps what it throws as a problem.
template <typename Check>
void note_problem(std::vector<std::string>& problems, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
}

std::uint64_t bytes_of(const ModelBlueprint& model) {
  std::uint64_t bytes = total_bytes(stored_spans(model.embedding)) + total_bytes(stored_spans(model.head));
  for (const LayerBlueprint& layer : model.layers) bytes += total_bytes(stored_spans(layer));
  return bytes;
}

ShardReport report_shards(const ModelBlueprint& model, const ShardOptions& options) {
  ShardReport report{.plan = plan_shards(model, options)};
  for (int rank = 0; rank < options.ranks; ++rank) {
    report.slices.push_back(slices_of(model, report.plan, rank));
    report.bytes.push_back(bytes_of(shard_headers(model, report.plan, rank)));
  }
  for (const LayerBlueprint& layer : model.layers) {
    report.kinds.push_back(
        std::string(std::holds_alternative<AttentionBlueprint>(layer.mixer) ? "attention" : "delta net") +
        (std::holds_alternative<MoeView>(layer.feed_forward) ? ", experts" : ", dense"));
  }
  report.legal = legal_ranks(model, options.experts);
  return report;
}

}  // namespace

Inspection inspect(const std::filesystem::path& folder, const EngineOptions& options) {
  Checkpoint checkpoint(folder);
  Inspection inspection{.checkpoint = summarize(checkpoint)};
  note_problem(inspection.problems, [&] {
    if (!std::filesystem::exists(folder / "tokenizer.json")) {
      fail({.file = (folder / "tokenizer.json").string()},
           "the file is missing, so that text can neither be read nor written");
    }
  });
  note_problem(inspection.problems, [&] { load_generation_config(folder, checkpoint.config()); });
  note_problem(inspection.problems, [&] {
    if (options.shards.ranks > 1) inspection.shards = report_shards(read_blueprint(checkpoint), options.shards);
    OpenedModel opened = open_model(std::move(checkpoint), options);
    inspection.model = std::move(opened.info);
    inspection.memory = std::move(opened.memory);
    require_fit(*inspection.memory);
  });
  for (const std::string& sentence : inspection.checkpoint.problems) {
    const bool stops_it =
        std::find(inspection.problems.begin(), inspection.problems.end(), sentence) != inspection.problems.end();
    if (!stops_it) inspection.notes.push_back(sentence);
  }
  return inspection;
}

}  // namespace pergola
