#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "format/config.h"
#include "format/linear_slices.h"
#include "format/safetensors.h"
#include "trellis/linear_view.h"

namespace pergola {

/// A model folder: its configuration and every tensor of every *.safetensors file in it. Reading one maps the files and
/// parses their headers; tensor data is touched only by who uses it. What tensors are is taken from the tensors alone:
/// an index file and every bit width in JSON are advisory and are not read.
///
/// Views point into the mapped files (or into storage of this object) and live as long as it does. Const members may be
/// called from several threads.
class Checkpoint {
 public:
  /// Throws Error when the folder is not a model folder, cannot be read, or holds a bad file.
  explicit Checkpoint(const std::filesystem::path& folder);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::filesystem::path& folder() const { return folder_; }
  /// config.json.
  const Config& config() const { return config_; }

  std::span<const TensorEntry> entries() const { return tensors_.entries(); }
  const TensorEntry* find(std::string_view name) const { return tensors_.find(name); }
  /// Throws Error naming the folder and the tensor when it is missing.
  const TensorEntry& require(std::string_view name) const;
  const TensorTable& tensors() const { return tensors_; }

  /// A dense float tensor (f32, f16 or bf16) of exactly this shape: rows = the first dimension, columns = the product
  /// of the others; a vector is one row. Throws Error for a missing tensor, another shape or another element type.
  DenseView dense(std::string_view name, std::initializer_list<std::int64_t> shape) const;

  /// Whether any tensor of a linear stands at `key`: a trellis, its sign vectors or a dense weight.
  bool has_linear(std::string_view key) const;

  /// The linear y = W x + b at `key` with its logical widths: `key`.trellis with its vectors and codebook marker, else
  /// `key`.weight [out, in]; with `key`.bias if it is there. A trellis may be padded to the next multiple of 128 in
  /// both widths, a dense weight in its rows; outputs beyond the logical width are cut. Legacy sign words (su, sv) are
  /// expanded, fp8 weights (F8_E4M3 with `key`.weight_scale_inv or `key`.weight_scale) decoded to bfloat16, once, into
  /// storage of this object. Throws Error naming the tensor for everything that docs/exl3.md calls
  /// invalid. Headers suffice for that, so a plan of 30,000 linears touches no page of their data; only the value of a
  /// codebook marker is left to `check_marker`.
  LinearView linear(std::string_view key, std::int64_t in, std::int64_t out) const;

  /// Throws Error unless the codebook marker of this linear, if it has one, holds the multiplier of its codebook. To be
  /// called before the linear's weights are used; best right before, since it reads a page beside them.
  void check_marker(const LinearView& linear) const;

  /// Rows [first_row, first_row + rows) of one expert of a fused dense tensor [experts, all rows, in], such as
  /// `mlp.experts.gate_up_proj`. Throws Error for a missing tensor, another rank, width or element type, or indices out
  /// of range.
  LinearView fused_expert(std::string_view tensor, std::int64_t expert, std::int64_t first_row, std::int64_t rows,
                          std::int64_t in) const;

  using OutputRange = IndexRange;

  /// The outputs of `linear` that the ranges name, one range after the other, as a linear of its own: how q, k and v
  /// are taken from a fused projection. One range of a dense weight stays where it is; anything else is copied once
  /// into storage of this object, which reads the data. Throws Error for a trellis when ranges do not start and end at
  /// multiples of 128 (its transform mixes blocks of 128 outputs).
  LinearView select_outputs(const LinearView& linear, std::span<const OutputRange> ranges) const;

  /// One expert of a fused dense tensor [experts, in, all columns]: output i is column first_column + i * step. With
  /// `bias` (may be empty) [experts, all columns]. Copied once into storage of this object. Throws Error for a missing
  /// tensor, another shape or element type.
  LinearView transposed_expert(std::string_view tensor, std::string_view bias, std::int64_t experts,
                               std::int64_t expert, std::int64_t first_column, std::int64_t step, std::int64_t out,
                               std::int64_t in) const;

  /// One expert of a fused MXFP4 tensor: `tensor`_blocks [experts, step * out, in / 32, 16] and `tensor`_scales without
  /// the last dimension; output i is row first_row + i * step. With `bias` (may be empty) [experts, step * out].
  /// Decoded once into storage of this object as bfloat16, which is exact. Throws Error for a missing tensor, another
  /// shape or element type, or a scale that is no number.
  LinearView mxfp4_expert(std::string_view tensor, std::string_view bias, std::int64_t experts, std::int64_t expert,
                          std::int64_t first_row, std::int64_t step, std::int64_t out, std::int64_t in) const;

  /// The key of the first trellis below `prefix` ("model.layers.0.mlp.experts" finds
  /// "model.layers.0.mlp.experts.0.down_proj"); empty if none.
  std::string_view trellis_below(std::string_view prefix) const;

  /// Lets the kernel drop the mapped pages of `bytes` (part of one tensor, or of all): they stay readable. For after
  /// weights were copied.
  void release_pages(std::span<const std::byte> bytes) const;
  void release_pages() const;

 private:
  struct Storage;

  DenseView expert_bias(std::string_view tensor, std::int64_t experts, std::int64_t expert, std::int64_t first,
                        std::int64_t step, std::int64_t out) const;
  DenseView dense_linear(std::string_view key, std::int64_t in, std::int64_t out) const;
  DenseView fp8_linear(const TensorEntry& entry, std::int64_t out, std::int64_t in) const;

  std::filesystem::path folder_;
  Config config_;
  TensorTable tensors_;
  std::vector<std::string_view> trellis_keys_;  ///< sorted
  std::unique_ptr<Storage> storage_;
};

}  // namespace pergola
