#pragma once

#include <cstdint>
#include <vector>

#include "format/config.h"
#include "model/rope_parameters.h"

namespace pergola {

/// The checked configuration of a Qwen3.5 text model.
struct Qwen35Config {
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  std::int64_t max_positions = 0;
  float eps = 1e-6f;
  bool tied_head = false;
  std::vector<bool> full_attention;  ///< one entry a layer; false = gated delta net

  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  bool attention_bias = false;
  RopeParameters rope;

  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int conv_kernel = 0;

  std::int64_t intermediate = 0;  ///< dense feed-forward
  std::int64_t experts = 0;       ///< 0 = dense
  int top_k = 0;
  std::int64_t expert_intermediate = 0;
  std::int64_t shared_intermediate = 0;
};

/// Reads the nested or flat form. Values that would change the mathematics beyond what is implemented are refused by
/// name; values for training, vision and the multi-token-prediction head are ignored.
Qwen35Config read_qwen3_5_config(const Config& config, bool mixture_of_experts);

}  // namespace pergola
