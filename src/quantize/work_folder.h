#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "format/safetensors.h"
#include "quantize/linear_quantizer.h"

namespace pergola {

/// An encoded linear with the prefix of its tensors.
struct NamedLinear {
  std::string key;
  QuantizedLinear linear;
};

/// What is known about an encoded linear beside its tensors.
struct LinearFacts {
  std::string key;
  std::int64_t in_features = 0;  ///< as stored
  std::int64_t out_features = 0;
  int bits = 0;
  Codebook codebook = Codebook::mul1;
  double scale = 0;         ///< as QuantizedLinear
  double proxy_error = 0;   ///< as QuantizedLinear
  double weight_error = 0;  ///< as QuantizedLinear

  std::int64_t weights() const { return in_features * out_features; }
};

/// The encoded linears of a layer (or the head), mapped from the file that holds them.
class FinishedPart {
 public:
  FinishedPart(const std::filesystem::path& file, std::vector<LinearFacts> linears);

  const std::vector<LinearFacts>& linears() const { return linears_; }
  /// Every tensor of every linear, under its final name.
  const TensorTable& tensors() const { return tensors_; }
  /// The linear at `index`; its bytes are those of the file.
  TrellisView view(std::size_t index) const;

 private:
  TensorTable tensors_;
  std::vector<LinearFacts> linears_;
};

/// The restartable state of a conversion: one file for each finished part (a layer, the head), written under another
/// name, flushed and renamed, with what is known about its linears and a hash of both in a small JSON file beside it
/// that is written last. A part whose hash does not match counts as not done.
class WorkFolder {
 public:
  /// `job` identifies the conversion: source, options, calibration. Creates the folder, or with `resume` opens one.
  /// Throws Error when the folder belongs to another job, when it exists and `resume` is false, or when it cannot be
  /// written.
  WorkFolder(std::filesystem::path folder, const nlohmann::json& job, bool resume);

  const std::filesystem::path& folder() const { return folder_; }

  /// A finished part; nothing if it has to be made.
  std::optional<FinishedPart> load(const std::string& part) const;
  /// Stores a part and gives it back as `load` would.
  FinishedPart save(const std::string& part, const std::vector<NamedLinear>& linears) const;

  /// What was measured before the first part, under a name of its own; null if it has to be measured.
  nlohmann::json load_measurement(const std::string& name) const;
  void save_measurement(const std::string& name, const nlohmann::json& values) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace pergola
