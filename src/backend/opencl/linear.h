#pragma once

#include <span>
#include <vector>

#include "backend/opencl/device.h"
#include "backend/opencl/matrix.h"
#include "backend/opencl/tensor_argument.h"
#include "backend/operations.h"

namespace pergola::opencl {

/// Most members of one launch.
inline constexpr std::size_t kMostMembers = 8;

/// Where the members' outputs go: outputs_t of kernels/linear.cl.
struct LinearOutputs {
  std::uint64_t offset[kMostMembers] = {};
  std::uint32_t stride[kMostMembers] = {};
  std::uint32_t first[kMostMembers] = {};
  std::uint32_t matrix[kMostMembers] = {};
  std::uint32_t count = 0;
  std::uint32_t reserved = 0;
};

/// A group of linears on the device: all trellis members in one launch whatever their K and codebooks, dense ones in
/// one launch each.
class OpenClLinears final : public LinearGroup {
 public:
  OpenClLinears(Device& device, std::span<const LinearView> members, std::int64_t max_rows, const RowTiles& tiles);

  std::int64_t in_features() const override { return bound_.matrices().front().in; }
  std::int64_t members() const override { return static_cast<std::int64_t>(bound_.matrices().size()); }
  std::int64_t out_features(std::int64_t member) const override {
    return bound_.matrices()[static_cast<std::size_t>(member)].out;
  }
  std::size_t bytes() const override { return bound_.bytes(); }

  void run(Device& device, const FloatMatrix& x, std::span<const FloatMatrix> outs) const;

  static std::size_t device_bytes(std::span<const LinearView> members);

 private:
  void run_trellis(Device& device, const FloatMatrix& x, std::span<const FloatMatrix> outs) const;
  void run_dense(Device& device, std::size_t member, const FloatMatrix& x, const FloatMatrix& out) const;

  BoundMatrices bound_;
  RowTiles tiles_;
  std::vector<const Kernel*> kernels_;  ///< one a tile, as many as steps need
  const Kernel* dense_kernel_ = nullptr;
};

}  // namespace pergola::opencl
