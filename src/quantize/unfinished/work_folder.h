#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "quantize/linear_quantizer.h"

namespace pergola {

/// An encoded linear with the prefix of its tensors.
struct NamedLinear {
  std::string key;
  QuantizedLinear linear;
};

/// The restartable state of a conversion: one file for each finished part (a layer, the head), written under another
/// name, flushed and renamed, with the hash of its content in a small JSON file beside it that is written last. A part
/// whose hash does not match counts as not done.
class WorkFolder {
 public:
  /// `job` identifies the conversion: source, options, calibration. Creates the folder, or with `resume` opens one.
  /// Throws Error when the folder belongs to another job, when it exists and `resume` is false, or when it cannot be
  /// written.
  WorkFolder(std::filesystem::path folder, const nlohmann::json& job, bool resume);

  const std::filesystem::path& folder() const { return folder_; }

  /// The linears of a finished part; nothing if it has to be made.
  std::optional<std::vector<NamedLinear>> load(const std::string& part) const;
  void save(const std::string& part, const std::vector<NamedLinear>& linears) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace pergola
