#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "base/progress.h"
#include "format/checkpoint.h"
#include "quantize/converter.h"
#include "quantize/work_folder.h"

namespace pergola {

/// Puts a converted model together: safetensors shards with the encoded linears and everything that stays dense,
/// config.json with its quantization_config, quantization_config.json with the inventory of tensors, and the source's
/// other files as they are.
class OutputFolder {
 public:
  OutputFolder(const Checkpoint& source, const QuantizeOptions& options, double bits,
               const CalibrationTokens& calibration);

  /// Writes into `folder`, which is emptied first. `biases` are those of linears that the source stores fused with
  /// others, by the name that they get. Returns the bytes of the safetensors files.
  std::uint64_t write(std::span<const FinishedPart> parts, const std::map<std::string, DenseView>& biases,
                      const std::filesystem::path& folder, const Progress& progress) const;

  /// Gives the finished folder its final name: `destination` must not exist, be empty, or hold the same files already
  /// (as after an interruption right behind an earlier publish). Throws Error otherwise.
  static void publish(const std::filesystem::path& folder, const std::filesystem::path& destination);

 private:
  const Checkpoint& source_;
  const QuantizeOptions& options_;
  double bits_;
  const CalibrationTokens& calibration_;
};

}  // namespace pergola
