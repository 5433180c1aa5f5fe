#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "format/checkpoint.h"
#include "trellis/codebook.h"
#include "trellis/tile_batch_encoder.h"

namespace pergola {

/// How the bits are spread over a model.
enum class Allocation : std::uint8_t {
  published,  ///< as the format's own converter does: the same K everywhere, spare bits by priority
  balanced,   ///< by importance: what every token passes gets more than routed experts
  measured,   ///< by importance, measured for every group of linears
};

/// What a conversion is asked for.
struct QuantizeOptions {
  double bits = 4.0;  ///< mean K of the linears other than the head, 1..8
  int head_bits = 6;  ///< K of the head, or 16: stored as fp16
  int mtp_bits = 4;   ///< K of multi-token-prediction linears, encoded without calibration, or 16
  Codebook codebook = Codebook::mul1;
  bool hq = false;  ///< attention, delta net and shared experts get two bits more, outside `bits`
  Allocation allocation = Allocation::balanced;
  std::uint64_t seed = 0;
  std::uint64_t shard_bytes = std::uint64_t{8192} << 20;
  std::filesystem::path work;  ///< restartable state; empty: the destination's name with ".work"
  bool resume = false;
  bool keep_work = false;
};

/// Token sequences of one length that the model is run on.
struct CalibrationTokens {
  std::vector<std::int32_t> tokens;
  std::int64_t length = 0;

  std::int64_t sequences() const { return length > 0 ? static_cast<std::int64_t>(tokens.size()) / length : 0; }
};

/// What encoding cost, linear by linear.
struct QuantizeReport {
  struct Linear {
    std::string key;
    std::int64_t weights = 0;
    int bits = 0;
    double scale = 0;
    double proxy_error = 0;   ///< error of the outputs over their power, on the calibration inputs
    double weight_error = 0;  ///< error of the weights over their power, regularised
  };
  std::vector<Linear> linears;
  double bits = 0;           ///< mean K without head and MTP
  std::uint64_t bytes = 0;   ///< of the written safetensors files
  std::int64_t encoded = 0;  ///< weights encoded by this run (the rest came from the work folder)
  double encode_seconds = 0;
  double seconds = 0;
};

/// Writes an EXL3 folder made from the dense model `source`: layer by layer, each calibrated on the outputs of the
/// encoded layers before it. `destination` must not exist or be empty; it appears whole at the end. With the same
/// options, source and calibration the bytes are the same however often the run was interrupted and resumed, and on any
/// number of threads. The source is only read. `tiles` searches tiles on a device (LinearQuantizer); a conversion is
/// resumed with the same kind of encoder.
///
/// Throws Error for a source that is not complete or already EXL3, weights that are not finite, bits out of range, too
/// little calibration, a destination that cannot be written.
QuantizeReport quantize_model(const Checkpoint& source, const std::filesystem::path& destination,
                              const CalibrationTokens& calibration, const QuantizeOptions& options, Backend& backend,
                              ThreadPool& pool, const Progress& progress, TileBatchEncoder* tiles = nullptr);

}  // namespace pergola
