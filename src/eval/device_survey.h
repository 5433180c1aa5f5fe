#pragma once

#include <optional>
#include <vector>

#include "backend/backend.h"
#include "eval/streaming_read.h"

namespace pergola {

/// A device and what was measured on it.
struct SurveyedDevice {
  DeviceListing listing;
  std::optional<StreamingRead> one_thread;  ///< for devices that are this machine's processor
  std::optional<StreamingRead> all_threads;
};

/// Every device of every backend that was built. With `measure`, the streaming bandwidth of the processor is measured
/// (about a second).
std::vector<SurveyedDevice> survey_devices(bool measure);

}  // namespace pergola
