#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/units.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/table.h"
#include "eval/inspection.h"

namespace pergola {
namespace {

struct Arguments {
  ModelArguments model;
  std::int64_t context = 0;
  std::int64_t max_sequences = 1;
  bool json = false;
};

std::string bytes_text(std::uint64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

/// "3" for one K of all linears of a group, "3 x10240, 4 x2" for a mix; empty without any.
std::string bits_text(const GroupSummary& group) {
  std::string text;
  for (std::size_t bits = 1; bits < group.linears_by_bits.size(); ++bits) {
    const std::int64_t count = group.linears_by_bits[bits];
    if (count == 0) continue;
    text += text.empty() ? "" : ", ";
    text += count == group.linears ? std::to_string(bits) : fmt::format("{} x{}", bits, count);
  }
  return text;
}

std::string codebooks_text(const GroupSummary& group) {
  std::string text;
  for (std::size_t i = 0; i < group.linears_by_codebook.size(); ++i) {
    if (group.linears_by_codebook[i] == 0) continue;
    text += text.empty() ? "" : ", ";
    text += name_of(static_cast<Codebook>(i));
  }
  return text;
}

std::string heading(const std::string& folder, const Inspection& inspection) {
  const CheckpointSummary& checkpoint = inspection.checkpoint;
  std::string text =
      fmt::format("{}: {}, {} tensors in {} file{}, {}\n", folder, checkpoint.architecture, checkpoint.tensors,
                  checkpoint.files, checkpoint.files == 1 ? "" : "s", bytes_text(checkpoint.tensor_bytes));
  if (inspection.model) {
    const ModelInfo& model = *inspection.model;
    text += fmt::format("{} layers, hidden {}, vocabulary {}, context up to {}\n", model.layers, model.hidden_size,
                        model.vocab_size, model.max_positions);
  }
  if (checkpoint.bits_per_weight > 0) {
    text += fmt::format("{:.2f} bits per weight ({:.2f} with sign vectors), head ", checkpoint.bits_per_weight,
                        checkpoint.stored_bits_per_weight);
    text += checkpoint.head_bits > 0 ? fmt::format("{:.0f}\n", checkpoint.head_bits) : "dense\n";
  }
  return text;
}

Table group_table(const CheckpointSummary& checkpoint) {
  Table table({"part", "tensors", "bytes", "trellis linears", "K", "codebook", "dense bytes"});
  for (const GroupSummary& group : checkpoint.groups) {
    table.add({std::string(name_of(group.group)), std::to_string(group.tensors), bytes_text(group.bytes),
               std::to_string(group.linears), bits_text(group), codebooks_text(group), bytes_text(group.dense_bytes)});
  }
  return table;
}

Table dense_table(const CheckpointSummary& checkpoint) {
  Table table({"dense tensors", "count", "type", "shape", "bytes"});
  for (const DenseKind& kind : checkpoint.dense) {
    table.add({kind.pattern, std::to_string(kind.count), std::string(name_of(kind.dtype)), shape_text(kind.shape),
               bytes_text(kind.bytes)});
  }
  return table;
}

Table memory_table(const MemoryPlan& plan) {
  Table table({"memory", "bytes", "smaller with"});
  for (const MemoryPart& part : plan.parts) table.add({part.name, bytes_text(part.bytes), part.flag});
  table.add({"total", bytes_text(plan.total()), ""});
  table.add({"available", bytes_text(plan.available.bytes), ""});
  return table;
}

std::string range_text(IndexRange range) {
  if (range.count == 0) return "-";
  return range.count == 1 ? std::to_string(range.first)
                          : fmt::format("{}-{}", range.first, range.first + range.count - 1);
}

/// A table of who holds what, one line for each part of each kind of layer.
std::string shard_text(const ShardReport& report, const ModelInfo* model) {
  std::vector<std::string> headings{"part"};
  for (int rank = 0; rank < report.plan.ranks; ++rank) headings.push_back(fmt::format("rank {}", rank));
  Table table(headings);
  const auto line = [&](const std::string& part, const std::vector<IndexRange>& ranges) {
    if (ranges.empty()) return;
    std::vector<std::string> cells{part};
    for (const IndexRange& range : ranges) cells.push_back(range_text(range));
    table.add(cells);
  };
  std::set<std::string> seen;
  for (std::size_t i = 0; i < report.plan.layers.size(); ++i) {
    const LayerShards& shards = report.plan.layers[i];
    const bool attention = report.kinds[i].starts_with("attention");
    if (seen.insert(report.kinds[i].substr(0, report.kinds[i].find(','))).second) {
      line(attention ? "query heads" : "delta-net value heads", shards.heads);
      line(attention ? "key/value heads" : "delta-net key heads", shards.kv_heads);
    }
    if (seen.insert(report.kinds[i].substr(report.kinds[i].find(','))).second) {
      line("experts", shards.experts);
      line(shards.experts.empty() ? "width of the feed-forward" : "width of an expert", shards.width);
      line("width of the shared expert", shards.shared);
    }
  }
  line("vocabulary of the head", report.plan.vocabulary);
  std::vector<std::string> bytes{"weights"};
  for (const std::uint64_t size : report.bytes) bytes.push_back(bytes_text(size));
  table.add(bytes);
  std::string text =
      fmt::format("\n{} ranks, experts {} (this model can be cut for {}):\n", report.plan.ranks,
                  report.plan.experts == ExpertPlacement::split ? "split" : "spread", fmt::join(report.legal, ", ")) +
      table.text();
  if (model != nullptr) {
    text +=
        fmt::format("a token takes {} all-reduces of {} and an all-gather of {}; --json has every tensor's slices\n",
                    2 * model->layers, bytes_text(static_cast<std::uint64_t>(model->hidden_size) * 4),
                    bytes_text(static_cast<std::uint64_t>(model->vocab_size) * 4));
  }
  return text;
}

std::string report(const std::string& folder, const Inspection& inspection) {
  std::string text = heading(folder, inspection) + "\n" + group_table(inspection.checkpoint).text() + "\n" +
                     dense_table(inspection.checkpoint).text();
  if (inspection.memory) {
    const MemoryPlan& plan = *inspection.memory;
    text += fmt::format("\n{} sequence{} of {} tokens take:\n", plan.max_sequences, plan.max_sequences == 1 ? "" : "s",
                        plan.context) +
            memory_table(plan).text();
  }
  if (inspection.shards) text += shard_text(*inspection.shards, inspection.model ? &*inspection.model : nullptr);
  for (const std::string& note : inspection.notes) text += "note: " + note + "\n";
  for (const std::string& problem : inspection.problems) text += "problem: " + problem + "\n";
  return text;
}

nlohmann::ordered_json group_json(const GroupSummary& group) {
  nlohmann::ordered_json bits = nlohmann::ordered_json::object();
  for (std::size_t k = 1; k < group.linears_by_bits.size(); ++k) {
    if (group.linears_by_bits[k] > 0) bits[std::to_string(k)] = group.linears_by_bits[k];
  }
  nlohmann::ordered_json codebooks = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < group.linears_by_codebook.size(); ++i) {
    if (group.linears_by_codebook[i] > 0)
      codebooks[std::string(name_of(static_cast<Codebook>(i)))] = group.linears_by_codebook[i];
  }
  return {{"part", name_of(group.group)},
          {"tensors", group.tensors},
          {"bytes", group.bytes},
          {"linears", group.linears},
          {"linears_by_bits", bits},
          {"linears_by_codebook", codebooks},
          {"trellis_weights", group.trellis_weights},
          {"trellis_bytes", group.trellis_bytes},
          {"side_bytes", group.side_bytes},
          {"dense_weights", group.dense_weights},
          {"dense_bytes", group.dense_bytes}};
}

nlohmann::ordered_json memory_json(const MemoryPlan& plan) {
  nlohmann::ordered_json parts;
  for (const MemoryPart& part : plan.parts) parts[part.name] = part.bytes;
  return {{"context", plan.context}, {"sequences", plan.max_sequences},   {"parts", parts},
          {"total", plan.total()},   {"available", plan.available.bytes}, {"fits", plan.fits()}};
}

nlohmann::ordered_json shard_json(const ShardReport& report) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (std::size_t rank = 0; rank < report.slices.size(); ++rank) {
    nlohmann::ordered_json slices = nlohmann::ordered_json::array();
    for (const TensorSlice& slice : report.slices[rank]) {
      const char* axis = slice.axis == TensorSlice::Axis::whole    ? "whole"
                         : slice.axis == TensorSlice::Axis::inputs ? "inputs"
                                                                   : "outputs";
      nlohmann::ordered_json ranges = nlohmann::ordered_json::array();
      for (const IndexRange& range : slice.ranges) ranges.push_back({range.first, range.count});
      slices.push_back({{"tensor", slice.tensor}, {"axis", axis}, {"ranges", ranges}});
    }
    ranks.push_back({{"weight_bytes", report.bytes[rank]}, {"slices", slices}});
  }
  return {{"experts", report.plan.experts == ExpertPlacement::split ? "split" : "spread"},
          {"legal", report.legal},
          {"ranks", ranks}};
}

nlohmann::ordered_json to_json(const std::string& folder, const Inspection& inspection) {
  const CheckpointSummary& checkpoint = inspection.checkpoint;
  nlohmann::ordered_json json{{"folder", folder},
                              {"architecture", checkpoint.architecture},
                              {"files", checkpoint.files},
                              {"tensors", checkpoint.tensors},
                              {"tensor_bytes", checkpoint.tensor_bytes},
                              {"bits_per_weight", checkpoint.bits_per_weight},
                              {"stored_bits_per_weight", checkpoint.stored_bits_per_weight},
                              {"head_bits", checkpoint.head_bits}};
  if (inspection.model) {
    const ModelInfo& model = *inspection.model;
    json["model"] = {{"layers", model.layers},
                     {"hidden_size", model.hidden_size},
                     {"vocab_size", model.vocab_size},
                     {"max_positions", model.max_positions}};
  }
  json["parts"] = nlohmann::ordered_json::array();
  for (const GroupSummary& group : checkpoint.groups) json["parts"].push_back(group_json(group));
  json["dense"] = nlohmann::ordered_json::array();
  for (const DenseKind& kind : checkpoint.dense) {
    json["dense"].push_back({{"pattern", kind.pattern},
                             {"count", kind.count},
                             {"dtype", name_of(kind.dtype)},
                             {"shape", kind.shape},
                             {"bytes", kind.bytes}});
  }
  if (inspection.memory) json["memory"] = memory_json(*inspection.memory);
  if (inspection.shards) json["shards"] = shard_json(*inspection.shards);
  json["notes"] = inspection.notes;
  json["problems"] = inspection.problems;
  return json;
}

int act(const Arguments& arguments) {
  EngineOptions options = engine_options(arguments.model);
  options.memory.context = arguments.context;
  options.memory.max_sequences = arguments.max_sequences;
  const Inspection inspection = inspect(arguments.model.folder, options);
  const std::string& folder = arguments.model.folder;
  write_output(arguments.json ? to_json(folder, inspection).dump(2) + "\n" : report(folder, inspection));
  return inspection.problems.empty() ? 0 : kExitError;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show what is in a model folder and whether it fits this machine; reads headers only");
  add_model_options(*command, arguments->model);
  command->add_option("--context", arguments->context, "Tokens of one sequence (default: 8192, or the model's limit)")
      ->check(CLI::PositiveNumber);
  command->add_option("--max-sequences", arguments->max_sequences, "Sequences at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--gpus,--ranks", arguments->model.engine.shards.ranks,
                   "Show how the model would be cut over this many GPUs or ranks")
      ->check(CLI::Range(1, 64));
  add_experts_option(*command, arguments->model);
  command->add_flag("--json", arguments->json, "Print JSON");
  command->footer(R"(
Exit code 1 when problems were found.

Examples:
  pergola inspect models/story
  pergola inspect MODEL --context 131072        does a long context fit?
  pergola inspect MODEL --gpus 2                which rank holds what?
  pergola inspect MODEL --json | jq .memory)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
