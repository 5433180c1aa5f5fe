#include "eval/device_survey.h"

#include "base/thread_pool.h"

namespace pergola {

std::vector<SurveyedDevice> survey_devices(bool measure) {
  std::vector<SurveyedDevice> devices;
  for (DeviceListing& listing : list_devices()) {
    SurveyedDevice device{.listing = std::move(listing)};
    if (measure && device.listing.available && device.listing.backend == "cpu") {
      device.one_thread = StreamingReadMeter(1).measure();
      device.all_threads = StreamingReadMeter(ThreadPool::available_processors()).measure();
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace pergola
