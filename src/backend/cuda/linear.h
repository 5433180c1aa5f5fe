#pragma once

#include <optional>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/regime.h"

namespace pergola::cuda {

/// One linear in device memory.
struct BoundLinear {
  std::int64_t in_features = 0;     ///< logical
  std::int64_t out_features = 0;    ///< logical
  std::optional<TrellisKind> kind;  ///< nothing: dense binary16
  std::int64_t stored_in = 0;       ///< trellis widths
  std::int64_t stored_out = 0;
  const std::byte* weights = nullptr;
  const __half* suh = nullptr;
  const __half* svh = nullptr;
  const __half* bias = nullptr;
};

/// Bytes of device memory that the linear takes, every part aligned to 256.
std::size_t device_bytes(const LinearView& view);

/// Copies one linear to `at` (device_bytes of room) and returns where its parts are. Throws Error when a dense weight
/// does not fit binary16.
BoundLinear load_linear(Device& device, const LinearView& view, std::byte* at);

/// out = x W^T + bias for W binary16 [out.columns, x.columns] and many rows.
void run_dense_many(Device& device, const MatrixView& x, const __half* weights, const __half* bias,
                    const MatrixView& out);

/// A group of linears that share their input.
class CudaLinears final : public LinearGroup {
 public:
  CudaLinears(Device& device, std::span<const LinearView> members, std::int64_t max_rows);

  std::int64_t in_features() const override { return linears_.front().in_features; }
  std::int64_t members() const override { return static_cast<std::int64_t>(linears_.size()); }
  std::int64_t out_features(std::int64_t member) const override {
    return linears_[static_cast<std::size_t>(member)].out_features;
  }
  std::size_t bytes() const override { return memory_.bytes(); }

  /// outs[i] = x W_i^T + bias_i.
  void run(Device& device, const MatrixView& x, std::span<const MatrixView> outs) const;

  /// Bytes of work space for up to `max_rows` rows.
  static std::size_t work_bytes(std::span<const LinearView> members, std::int64_t max_rows, int shared_bytes);

 private:
  /// Very few rows in one launch a codebook, where the device and the shapes allow it. False: nothing was done.
  bool run_gemv(Device& device, const MatrixView& x, std::span<const MatrixView> outs) const;
  void run_few(Device& device, TrellisKind kind, const Regime& regime, const MatrixView& x,
               std::span<const MatrixView> outs) const;
  void run_dense(Device& device, const MatrixView& x, std::span<const MatrixView> outs) const;
  void run_many(Device& device, const BoundLinear& linear, const MatrixView& x, const MatrixView& out) const;

  DeviceMemory memory_;
  std::vector<BoundLinear> linears_;
  std::vector<TrellisKind> kinds_;  ///< distinct ones
  RegimeTable table_;
};

}  // namespace pergola::cuda
