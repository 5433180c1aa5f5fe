#pragma once

#include <functional>
#include <memory>

namespace pergola {

/// A step that was recorded on a device and can be run again without issuing its operations one by one. What varies
/// from run to run (tokens, positions, page tables, slots) is read from the tensors that the recorded operations were
/// given; shapes are fixed. Belongs to the backend that recorded it.
class RecordedStep {
 public:
  virtual ~RecordedStep() = default;
  /// Runs the step in the order of the backend's other operations. The results equal those of the operations
  /// themselves, to the bit.
  virtual void replay() = 0;
};

/// A backend that can record steps implements this beside Backend: `dynamic_cast<StepRecorder*>(&backend)`.
class StepRecorder {
 public:
  virtual ~StepRecorder() = default;
  /// Records the operations that `step` issues, without running them. They may be the first that the backend ever sees:
  /// everything they need was made when weights were bound. `step` may not copy between host and device.
  virtual std::unique_ptr<RecordedStep> record(const std::function<void()>& step) = 0;
};

}  // namespace pergola
