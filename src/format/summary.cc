#include "format/summary.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "format/trellis_tensors.h"

namespace pergola {
namespace {

constexpr std::size_t kMostProblems = 20;

/// Tensors that belong to a linear only next to its trellis.
constexpr std::array<std::string_view, 6> kSideSuffixes{".suh", ".svh", ".su", ".sv", ".mcg", ".mul1"};

bool contains(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

/// The name with "*" for every part that is a number.
std::string pattern_of(std::string_view name) {
  std::string pattern;
  while (!name.empty()) {
    const auto end = std::min(name.find('.'), name.size());
    const auto part = name.substr(0, end);
    if (!pattern.empty()) pattern += '.';
    pattern += !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos ? "*" : part;
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return pattern;
}

/// The number after "layers." in the name of a trunk tensor.
std::optional<std::int64_t> layer_of(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const auto start = name.find(kLayers);
  const TensorGroup group = group_of(name);
  if (start == std::string_view::npos || group == TensorGroup::mtp || group == TensorGroup::vision) return std::nullopt;
  const auto digits = name.substr(start + kLayers.size());
  std::int64_t layer = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  if (error != std::errc() || end == digits.data() + digits.size() || *end != '.') return std::nullopt;
  return layer;
}

/// Collects a summary tensor by tensor.
class Summarizer {
 public:
  explicit Summarizer(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  CheckpointSummary run() {
    for (std::size_t i = 0; i < kTensorGroups; ++i) groups_[i].group = static_cast<TensorGroup>(i);
    for (const TensorEntry& entry : checkpoint_.entries()) add(entry);
    for (const MappedFile& file : checkpoint_.tensors().files()) summary_.file_bytes += file.bytes().size();
    summary_.files = static_cast<std::int64_t>(checkpoint_.tensors().files().size());
    for (auto& [pattern, kind] : dense_) summary_.dense.push_back(std::move(kind));
    count_bits();
    check_shards();
    guarded([&] { check_config(); });
    for (const GroupSummary& group : groups_) {
      if (group.tensors > 0) summary_.groups.push_back(group);
    }
    if (unlisted_ > 0) summary_.problems.push_back(fmt::format("{} more problems like these", unlisted_));
    return std::move(summary_);
  }

 private:
  void problem(std::string text) {
    if (summary_.problems.size() < kMostProblems) {
      summary_.problems.push_back(std::move(text));
    } else {
      ++unlisted_;
    }
  }

  /// Runs a check; what it throws becomes a problem.
  template <typename Check>
  void guarded(Check&& check) {
    try {
      check();
    } catch (const Error& error) {
      problem(error.what());
    }
  }

  GroupSummary& group_at(std::string_view name) { return groups_[static_cast<std::size_t>(group_of(name))]; }

  const TensorEntry* sibling(std::string_view key, std::string_view suffix) {
    name_.assign(key).append(suffix);
    return checkpoint_.find(name_);
  }

  void add(const TensorEntry& entry) {
    GroupSummary& group = group_at(entry.name);
    ++summary_.tensors;
    ++group.tensors;
    summary_.tensor_bytes += entry.bytes.size();
    group.bytes += entry.bytes.size();
    if (const auto layer = layer_of(entry.name)) layers_.insert(*layer);
    if (const auto key = trellis_key(entry.name); !key.empty()) {
      guarded([&] { add_linear(group, key, entry); });
    } else if (belongs_to_trellis(entry)) {
      group.side_bytes += entry.bytes.size();
    } else {
      add_dense(group, entry);
    }
  }

  void add_linear(GroupSummary& group, std::string_view key, const TensorEntry& trellis) {
    const TrellisTensors linear = find_trellis(checkpoint_.tensors(), key);
    const auto weights = static_cast<std::uint64_t>(linear.in_features * linear.out_features);
    ++group.linears;
    ++group.linears_by_bits[static_cast<std::size_t>(linear.bits)];
    ++group.linears_by_codebook[static_cast<std::size_t>(linear.codebook)];
    group.weights_by_bits[static_cast<std::size_t>(linear.bits)] += weights;
    group.trellis_weights += weights;
    group.trellis_bytes += trellis.bytes.size();
    if (sibling(key, ".weight") != nullptr) problem(fmt::format("{} has both a trellis and a dense weight", key));
  }

  /// Whether the tensor is a sign vector, marker or bias of a linear with a trellis.
  bool belongs_to_trellis(const TensorEntry& entry) {
    const std::string_view name = entry.name;
    const std::string_view suffix = name.substr(std::min(name.rfind('.'), name.size()));
    const std::string_view key = name.substr(0, name.size() - suffix.size());
    if (suffix == ".bias") return sibling(key, ".trellis") != nullptr;
    if (std::find(kSideSuffixes.begin(), kSideSuffixes.end(), suffix) == kSideSuffixes.end()) return false;
    if (sibling(key, ".trellis") != nullptr) return true;
    problem(fmt::format("{} is there, but {}.trellis is missing", name, key));
    return false;
  }

  void add_dense(GroupSummary& group, const TensorEntry& entry) {
    group.dense_weights += static_cast<std::uint64_t>(entry.elements());
    group.dense_bytes += entry.bytes.size();
    DenseKind& kind =
        dense_[fmt::format("{} {} {}", pattern_of(entry.name), name_of(entry.dtype), shape_text(entry.shape))];
    if (kind.count++ == 0) {
      kind.pattern = pattern_of(entry.name);
      kind.dtype = entry.dtype;
      kind.shape = entry.shape;
    }
    kind.bytes += entry.bytes.size();
  }

  void count_bits() {
    double bits = 0;
    double stored = 0;
    double weights = 0;
    for (const GroupSummary& group : groups_) {
      if (group.trellis_weights == 0) continue;
      const double packed = static_cast<double>(group.trellis_bytes) * 8;
      if (group.group == TensorGroup::head) summary_.head_bits = packed / static_cast<double>(group.trellis_weights);
      if (group.group == TensorGroup::head || group.group == TensorGroup::mtp || group.group == TensorGroup::vision)
        continue;
      bits += packed;
      stored += packed + static_cast<double>(group.side_bytes) * 8;
      weights += static_cast<double>(group.trellis_weights);
    }
    if (weights == 0) return;
    summary_.bits_per_weight = bits / weights;
    summary_.stored_bits_per_weight = stored / weights;
  }

  /// Names of the form *-00002-of-00004.safetensors tell how many files there should be.
  void check_shards() {
    constexpr std::size_t kDigits = 5;
    std::map<std::string, std::set<std::string>> sets;
    for (const MappedFile& file : checkpoint_.tensors().files()) {
      const std::string stem = file.path().stem().string();
      const auto of = stem.rfind("-of-");
      if (of == std::string::npos || of < kDigits || stem.size() != of + 4 + kDigits) continue;
      sets[stem.substr(0, of - kDigits) + '*' + stem.substr(of)].insert(stem.substr(of - kDigits, kDigits));
    }
    for (const auto& [name, parts] : sets) {
      const int expected = std::atoi(name.substr(name.size() - kDigits).c_str());
      if (static_cast<int>(parts.size()) < expected) {
        problem(fmt::format("{} of {} files {}.safetensors are here", parts.size(), expected, name));
      }
    }
  }

  void check_config() {
    const Config& config = checkpoint_.config();
    guarded([&] { summary_.architecture = config.architecture(); });
    const Config text = config.text();
    guarded([&] { check_layers(text); });
    if (text.get_int("mtp_num_hidden_layers", 0, 0, INT32_MAX) > 0 &&
        groups_[static_cast<std::size_t>(TensorGroup::mtp)].tensors == 0) {
      problem("config.json announces an MTP head (mtp_num_hidden_layers), but there are no mtp tensors");
    }
    if (groups_[static_cast<std::size_t>(TensorGroup::head)].tensors == 0 &&
        !config.get_bool("tie_word_embeddings", text.get_bool("tie_word_embeddings", false))) {
      problem("there is no lm_head, and config.json does not tie it to the embedding (tie_word_embeddings)");
    }
    guarded([&] { check_claims(config); });
  }

  void check_layers(const Config& text) {
    const std::int64_t layers = text.get_int("num_hidden_layers", 0, 0, INT32_MAX);
    if (layers != static_cast<std::int64_t>(layers_.size()) && layers > 0) {
      problem(
          fmt::format("config.json says {} layers (num_hidden_layers), the tensors are of {}", layers, layers_.size()));
    }
  }

  /// What config.json says about quantisation is not used, but a reader of the summary should know where it is wrong.
  void check_claims(const Config& config) {
    const auto claims = config.object("quantization_config");
    if (!claims || claims->get_string("quant_method", "exl3") != "exl3") return;
    if (claims->has("bits")) summary_.config_bits = claims->require_float("bits", 0, 64);
    if (summary_.config_bits && summary_.bits_per_weight > 0 &&
        std::abs(*summary_.config_bits - summary_.bits_per_weight) > 0.0151) {
      problem(fmt::format("config.json says {:.2f} bits per weight, the tensors have {:.2f}; the tensors are used",
                          *summary_.config_bits, summary_.bits_per_weight));
    }
  }

  const Checkpoint& checkpoint_;
  CheckpointSummary summary_;
  std::array<GroupSummary, kTensorGroups> groups_{};
  std::map<std::string, DenseKind> dense_;
  std::set<std::int64_t> layers_;
  std::int64_t unlisted_ = 0;
  std::string name_;
};

}  // namespace

std::string_view name_of(TensorGroup group) {
  constexpr std::array<std::string_view, kTensorGroups> kNames{
      "embedding", "attention", "delta net", "routed experts", "shared experts",
      "dense mlp", "head",      "mtp",       "vision",         "other"};
  return kNames[static_cast<std::size_t>(group)];
}

TensorGroup group_of(std::string_view tensor) {
  if (tensor.starts_with("mtp.") || contains(tensor, ".mtp.")) return TensorGroup::mtp;
  if (contains(tensor, "visual.") || contains(tensor, "vision_")) return TensorGroup::vision;
  if (contains(tensor, "lm_head.")) return TensorGroup::head;
  if (contains(tensor, "embed_tokens.")) return TensorGroup::embedding;
  if (contains(tensor, ".self_attn.")) return TensorGroup::attention;
  if (contains(tensor, ".linear_attn.")) return TensorGroup::delta_net;
  if (contains(tensor, ".shared_expert")) return TensorGroup::shared_experts;
  for (const std::string_view part : {".experts.", ".mlp.gate.", ".mlp.router.", ".block_sparse_moe."}) {
    if (contains(tensor, part)) return TensorGroup::routed_experts;
  }
  if (contains(tensor, ".mlp.")) return TensorGroup::dense_mlp;
  return TensorGroup::other;
}

CheckpointSummary summarize(const Checkpoint& checkpoint) {
  return Summarizer(checkpoint).run();
}

}  // namespace pergola
