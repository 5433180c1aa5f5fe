#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pergola::testing {

/// A small random Qwen3.5 model: what its files look like and what it computes. Defaults have G = 3 value heads per key
/// head, a query-to-kv ratio of 2, and widths that are not multiples of 128.
struct TinyQwen {
  enum class Weights : std::uint8_t { f32, bf16, exl3 };

  std::int64_t hidden = 256;
  std::int64_t vocab = 307;
  std::vector<bool> full_attention{false, false, true, false};
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 64;
  double partial_rotary = 0.25;
  double rope_theta = 1e4;
  std::int64_t key_heads = 2;
  std::int64_t value_heads = 6;
  std::int64_t key_dim = 32;
  std::int64_t value_dim = 64;
  std::int64_t conv_kernel = 4;
  std::int64_t experts = 0;  ///< 0 = dense feed-forward
  std::int64_t top_k = 3;
  std::int64_t intermediate = 200;  ///< of the dense feed-forward, of an expert and of the shared expert
  double eps = 1e-6;
  std::uint32_t seed = 1;

  Weights weights = Weights::f32;
  bool nested = true;          ///< config.json with text_config
  bool fused_experts = false;  ///< only where weights are not EXL3
  bool tied = false;           ///< no head of its own
  bool extras = false;         ///< tensors of a vision tower and of an MTP head
  std::string prefix = "model.language_model.";

  std::int64_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  std::string architecture() const;
  /// config.json.
  nlohmann::json config() const;
  /// Writes config.json and model.safetensors.
  void write(const std::filesystem::path& folder) const;
};

}  // namespace pergola::testing
