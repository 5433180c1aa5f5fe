#include "model/weight_reader.h"

#include <fmt/format.h>

#include "base/error.h"

namespace pergola {

namespace {

/// Published, text-only and MLX-style names.
std::string find_prefix(const Checkpoint& checkpoint) {
  constexpr std::array kPrefixes = {"model.language_model.", "model.", "language_model.model."};
  for (const char* prefix : kPrefixes) {
    if (checkpoint.find(std::string(prefix) + "embed_tokens.weight") != nullptr) return prefix;
  }
  fail({.file = checkpoint.folder().string(), .tensor = "model.embed_tokens.weight"},
       "the embedding table is missing, under this name, under 'model.language_model.embed_tokens.weight' and under "
       "'language_model.model.embed_tokens.weight'");
}

}  // namespace

WeightReader::WeightReader(const Checkpoint& checkpoint, std::int64_t hidden)
    : checkpoint_(checkpoint), hidden_(hidden), prefix_(find_prefix(checkpoint)) {}

NormBlueprint WeightReader::norm(const std::string& key, std::int64_t width, float eps, bool zero_centred) const {
  return {checkpoint_.dense(key + ".weight", {width}), eps, zero_centred};
}

LinearView WeightReader::linear(const std::string& key, std::int64_t in, std::int64_t out, bool bias) const {
  LinearView linear = checkpoint_.linear(key, in, out);
  if (linear.bias.has_value() != bias) {
    fail({.file = checkpoint_.folder().string(), .tensor = key + ".bias"}, "{}",
         bias ? "the configuration says that this linear has a bias, but it is missing"
              : "this linear has a bias where the configuration and the architecture know none");
  }
  return linear;
}

std::vector<LinearView> WeightReader::parts(std::span<const std::string> keys, std::span<const std::int64_t> outs,
                                            const std::string& fused, std::int64_t in, bool bias) const {
  std::vector<LinearView> parts;
  if (fused.empty() || !checkpoint_.has_linear(fused)) {
    for (std::size_t i = 0; i < keys.size(); ++i) parts.push_back(linear(keys[i], in, outs[i], bias));
    return parts;
  }
  std::int64_t all = 0;
  for (const std::int64_t out : outs) all += out;
  const LinearView whole = linear(fused, in, all, bias);
  std::int64_t first = 0;
  for (const std::int64_t out : outs) {
    const Checkpoint::OutputRange range{first, out};
    parts.push_back(checkpoint_.select_outputs(whole, std::span(&range, 1)));
    first += out;
  }
  return parts;
}

LinearView WeightReader::dense_linear(const std::string& key, std::int64_t out) const {
  return {key, hidden_, out, checkpoint_.dense(key + ".weight", {out, hidden_}), {}};
}

MoeView::Expert WeightReader::expert(const std::string& key, std::span<const std::string_view, 3> names,
                                     const std::string& fused, std::int64_t width, bool bias) const {
  const std::array keys = {key + std::string(names[0]), key + std::string(names[1])};
  std::vector<LinearView> gate_up = parts(keys, std::array{width, width}, fused, hidden_, bias);
  return {std::move(gate_up[0]), std::move(gate_up[1]), linear(key + std::string(names[2]), width, hidden_, bias)};
}

std::vector<MoeView::Expert> WeightReader::experts(const std::string& key, std::span<const std::string_view, 3> names,
                                                   std::int64_t count, std::int64_t width, bool bias) const {
  std::vector<MoeView::Expert> experts;
  const std::string gate_up = key + "gate_up_proj";
  const std::string down = key + "down_proj";
  if (checkpoint_.find(gate_up) == nullptr) {
    for (std::int64_t e = 0; e < count; ++e)
      experts.push_back(expert(fmt::format("{}{}.", key, e), names, {}, width, bias));
    return experts;
  }
  // A fused tensor must have exactly these experts and rows: views of a part would hide a mismatch.
  checkpoint_.dense(gate_up, {count, 2 * width, hidden_});
  checkpoint_.dense(down, {count, hidden_, width});
  for (std::int64_t e = 0; e < count; ++e) {
    experts.push_back({checkpoint_.fused_expert(gate_up, e, 0, width, hidden_),
                       checkpoint_.fused_expert(gate_up, e, width, width, hidden_),
                       checkpoint_.fused_expert(down, e, 0, hidden_, width)});
  }
  return experts;
}

DenseView WeightReader::embedding(std::int64_t vocab) const {
  return checkpoint_.dense(prefix_ + "embed_tokens.weight", {vocab, hidden_});
}

LinearView WeightReader::head(std::int64_t vocab, bool tied) const {
  for (const char* key : {"lm_head", "language_model.lm_head"}) {
    if (checkpoint_.has_linear(key)) return linear(key, hidden_, vocab, false);
  }
  if (!tied) {
    fail({.file = checkpoint_.folder().string(), .tensor = "lm_head.weight"},
         "the head is missing and the configuration does not tie it to the embedding");
  }
  return {"lm_head (tied)", hidden_, vocab, embedding(vocab), {}};
}

}  // namespace pergola
