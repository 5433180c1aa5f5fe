#include "model/decoder_experts.h"

#include <fmt/format.h>

#include <algorithm>

namespace pergola {

DecoderExperts::DecoderExperts(const ExpertFamily& family, TextConfig& text, const WeightReader& weights,
                               std::int64_t hidden)
    : family_(family), weights_(weights), hidden_(hidden) {
  // Newer files of some families say `num_local_experts` for what older ones call otherwise.
  text.note("num_local_experts");
  const std::string_view count_field = text.has(family.count_field) ? family.count_field : "num_local_experts";
  count_ = text.require_int(count_field, kMaxCount);
  width_ = text.require_int(family.width_field, kMaxWidth);
  if (!family.shared.empty()) shared_width_ = width_ * text.get_int("n_shared_experts", 1, 0, 64);
  read_routing(text);
  read_layers(text);
}

void DecoderExperts::read_routing(TextConfig& text) {
  routing_.hidden = hidden_;
  routing_.top_k = static_cast<int>(text.require_int("num_experts_per_tok", count_));
  routing_.activation = family_.activation;
  routing_.score = family_.score;
  if (family_.renormalised == Setting::from_config) {
    const bool normalised = text.get_bool("norm_topk_prob", false);
    if (!normalised && family_.score == RouterScore::sigmoid)
      text.reject("norm_topk_prob", "sigmoid routing without renormalised weights is not supported");
    if (!normalised) routing_.score = RouterScore::softmax_all;
  }
  if (family_.score == RouterScore::sigmoid) {
    routing_.routed_scale = static_cast<float>(text.get_float("routed_scaling_factor", 1.0, 0.0, 1e6));
    routing_.groups = static_cast<int>(text.get_int("n_group", 1, 1, kMaxExpertGroups));
    routing_.top_groups = static_cast<int>(text.get_int("topk_group", 1, 1, routing_.groups));
    text.config().check_divides("n_group", count_, routing_.groups, "the number of groups");
    if (count_ / routing_.groups * routing_.top_groups < routing_.top_k)
      text.reject("topk_group", "{} of {} groups hold fewer experts than a token takes", routing_.top_groups,
                  routing_.groups);
  }
  if (family_.activation == Activation::clamped_swiglu) {
    if (text.get_float("swiglu_limit", kSwigluLimit, 0, 1e6) != static_cast<double>(kSwigluLimit))
      text.reject("swiglu_limit", "another limit than {} is not supported", kSwigluLimit);
    if (static_cast<float>(text.get_float("swiglu_alpha", kSwigluAlpha, 0, 1e6)) != kSwigluAlpha)
      text.reject("swiglu_alpha", "another factor than {} is not supported", kSwigluAlpha);
  }
}

void DecoderExperts::read_layers(TextConfig& text) {
  const std::int64_t layers = text.require_int("num_hidden_layers", kMaxCount);
  in_layer_.assign(static_cast<std::size_t>(layers), true);
  const auto make_dense = [&](std::int64_t layer) {
    in_layer_[static_cast<std::size_t>(layer)] = false;
    dense_layers_ = true;
  };
  if (family_.dense_first_layers) {
    const std::int64_t first = text.get_int("first_k_dense_replace", 0, 0, layers);
    for (std::int64_t i = 0; i < first; ++i) make_dense(i);
  }
  if (family_.dense_between) {
    const std::int64_t step = text.get_int("decoder_sparse_step", 1, 1, kMaxCount);
    for (std::int64_t i = 0; i < layers; ++i) {
      if ((i + 1) % step != 0) make_dense(i);
    }
    for (const std::int64_t i : text.get_int_list("mlp_only_layers", layers - 1)) make_dense(i);
  }
}

MoeView DecoderExperts::read(const std::string& layer_key) const {
  const std::string key = layer_key + std::string(family_.block);
  MoeView moe = routing_;
  moe.name = key.substr(0, key.size() - 1);
  moe.router = weights_.dense_linear(key + std::string(family_.router), count_);
  if (family_.router_bias)
    moe.router.bias = weights_.checkpoint().dense(key + std::string(family_.router) + ".bias", {count_});
  if (family_.score == RouterScore::sigmoid) {
    const std::string name = key + std::string(family_.router) + ".e_score_correction_bias";
    moe.correction = weights_.checkpoint().dense(name, {count_});
  }
  const std::string experts = key + "experts.";
  const auto there = [&](const char* tensor) { return weights_.checkpoint().find(experts + tensor) != nullptr; };
  const bool fused = family_.interleaved && (there("gate_up_proj") || there("gate_up_proj_blocks"));
  moe.experts = fused ? read_interleaved(experts)
                      : weights_.experts(experts, family_.projections, count_, width_, family_.expert_bias);
  if (shared_width_ > 0)
    moe.shared = weights_.expert(key + std::string(family_.shared) + ".", kGateUpDown, {}, shared_width_, false);
  return moe;
}

std::vector<MoeView::Expert> DecoderExperts::read_interleaved(const std::string& key) const {
  const Checkpoint& checkpoint = weights_.checkpoint();
  const std::string gate_up = key + "gate_up_proj";
  const std::string down = key + "down_proj";
  const std::string gate_up_bias = family_.expert_bias ? gate_up + "_bias" : "";
  const std::string down_bias = family_.expert_bias ? down + "_bias" : "";
  std::vector<MoeView::Expert> experts;
  for (std::int64_t e = 0; e < count_; ++e) {
    if (checkpoint.find(gate_up + "_blocks") != nullptr) {
      experts.push_back({checkpoint.mxfp4_expert(gate_up, gate_up_bias, count_, e, 0, 2, width_, hidden_),
                         checkpoint.mxfp4_expert(gate_up, gate_up_bias, count_, e, 1, 2, width_, hidden_),
                         checkpoint.mxfp4_expert(down, down_bias, count_, e, 0, 1, hidden_, width_)});
      continue;
    }
    experts.push_back({checkpoint.transposed_expert(gate_up, gate_up_bias, count_, e, 0, 2, width_, hidden_),
                       checkpoint.transposed_expert(gate_up, gate_up_bias, count_, e, 1, 2, width_, hidden_),
                       checkpoint.transposed_expert(down, down_bias, count_, e, 0, 1, hidden_, width_)});
  }
  return experts;
}

}  // namespace pergola
