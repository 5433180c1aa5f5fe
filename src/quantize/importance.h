#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "model/blueprint.h"
#include "quantize/converter.h"

namespace pergola {

/// What encoding one allocation group alone costs, the rest of the model as in the source.
struct GroupCost {
  std::string group;
  std::int64_t weights = 0;
  int bits = 0;    ///< the lower of two widths
  double kl[2]{};  ///< mean KL(source || model) in nats at `bits` and `bits` + 1
  /// For AllocationGroup::importance: KL a weight, brought to one width by 4^bits; the geometric mean of both.
  double importance() const;
};

/// Encodes every group at two neighbouring widths around `options.bits` and runs the model once for each with only that
/// group encoded, over about a thousand of the calibration's tokens. Costs two encodings of the model and, for each
/// group, two runs of the layers from its own on. `model` is the blueprint of `source`.
std::vector<GroupCost> measure_importance(const Checkpoint& source, ModelBlueprint model,
                                          const CalibrationTokens& calibration, const QuantizeOptions& options,
                                          Backend& backend, ThreadPool& pool, const Progress& progress,
                                          TileBatchEncoder* tiles = nullptr);

}  // namespace pergola
