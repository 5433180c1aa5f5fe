#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "format/checkpoint.h"

namespace pergola {

/// What part of a model a tensor belongs to, by its name.
enum class TensorGroup : std::uint8_t {
  embedding,
  attention,
  delta_net,
  routed_experts,  ///< and their router
  shared_experts,  ///< and their gate
  dense_mlp,
  head,
  mtp,
  vision,
  other,  ///< norms between blocks, and names that fit nowhere
};

inline constexpr std::size_t kTensorGroups = 10;

/// "embedding", "delta net", ...
std::string_view name_of(TensorGroup group);

/// The group of a tensor's name in the layouts of Hugging Face.
TensorGroup group_of(std::string_view tensor);

/// The tensors of one group, counted from headers.
struct GroupSummary {
  TensorGroup group = TensorGroup::other;
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0;                            ///< of all tensors
  std::int64_t linears = 0;                           ///< with a trellis
  std::array<std::int64_t, 9> linears_by_bits{};      ///< index K
  std::array<std::uint64_t, 9> weights_by_bits{};     ///< index K; stored in x out, padding included
  std::array<std::int64_t, 3> linears_by_codebook{};  ///< index Codebook
  std::uint64_t trellis_weights = 0;
  std::uint64_t trellis_bytes = 0;  ///< of the packed tiles
  std::uint64_t side_bytes = 0;     ///< of sign vectors, markers and biases of these linears
  std::uint64_t dense_weights = 0;  ///< elements of everything else
  std::uint64_t dense_bytes = 0;
};

/// Dense tensors that differ in the numbers of their names only.
struct DenseKind {
  std::string pattern;  ///< e.g. "model.layers.*.input_layernorm.weight"
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t count = 0;
  std::uint64_t bytes = 0;
};

/// A checkpoint as its headers describe it. No tensor data is read for it.
struct CheckpointSummary {
  std::string architecture;  ///< empty when the config names none
  std::int64_t files = 0;
  std::int64_t tensors = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t tensor_bytes = 0;
  std::vector<GroupSummary> groups;  ///< those that have tensors, in the order of TensorGroup
  double bits_per_weight =
      0;  ///< as the field counts: mean K over the linears without head, MTP and vision; 0 without any
  double stored_bits_per_weight = 0;  ///< of the same linears with their sign vectors and markers
  double head_bits = 0;               ///< mean K of the head, 0 when it is dense or absent
  std::optional<double> config_bits;  ///< what config.json claims
  std::vector<DenseKind> dense;       ///< in the order of their patterns
  std::vector<std::string> problems;  ///< one sentence each; what a load of the model would refuse comes with the
                                      ///< sentence it would fail with
};

/// Describes a checkpoint. Throws nothing for what is wrong with it: that is listed under `problems`.
CheckpointSummary summarize(const Checkpoint& checkpoint);

}  // namespace pergola
