#include "backend/opencl/matrix.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "trellis/decode.h"

namespace pergola::opencl {

namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}

std::size_t bias_bytes(const LinearView& view) {
  return view.bias ? aligned(static_cast<std::size_t>(view.out_features) * sizeof(float)) : 0;
}

std::uint32_t padded(std::int64_t features) {
  return static_cast<std::uint32_t>((features + 127) / 128 * 128);
}

std::uint32_t dense_kind(const LinearView& view) {
  switch (view.dense()->dtype) {
    case DType::f32:
      return Matrix::kDenseKind;
    case DType::f16:
      return Matrix::kDenseKind + 1;
    case DType::bf16:
      return Matrix::kDenseKind + 2;
    default:
      fail({.tensor = view.name}, "dense weights of type {} are not supported by the OpenCL backend",
           name_of(view.dense()->dtype));
  }
}

std::vector<std::size_t> sizes_of(std::span<const LinearView* const> views) {
  std::vector<std::size_t> sizes;
  for (const LinearView* view : views) sizes.push_back(device_bytes(*view));
  return sizes;
}

/// Writes a linear at its place and describes it.
Matrix load(WeightArenas& arenas, ArenaPlace place, const LinearView& view) {
  Matrix matrix;
  matrix.in = static_cast<std::uint32_t>(view.in_features);
  matrix.out = static_cast<std::uint32_t>(view.out_features);
  matrix.arena = place.arena;
  const auto put = [&](const void* from, std::size_t bytes) {
    arenas.write(place, from, bytes);
    return std::exchange(place.offset, place.offset + aligned(bytes));
  };
  if (const TrellisView* trellis = view.trellis()) {
    matrix.stored_in = static_cast<std::uint32_t>(trellis->in_features);
    matrix.stored_out = static_cast<std::uint32_t>(trellis->out_features);
    matrix.kind = static_cast<std::uint32_t>(trellis->codebook) * 8 + static_cast<std::uint32_t>(trellis->bits) - 1;
    matrix.weights = put(trellis->trellis.data(), trellis->trellis.size()) / 4;
    matrix.suh = put(trellis->suh.data(), trellis->suh.size()) / 2;
    matrix.svh = put(trellis->svh.data(), trellis->svh.size()) / 2;
  } else {
    matrix.stored_in = padded(view.in_features);
    matrix.stored_out = padded(view.out_features);
    matrix.kind = dense_kind(view);
    const DenseView& dense = *view.dense();
    matrix.weights = put(dense.bytes.data(), dense.bytes.size()) / size_of(dense.dtype);
  }
  if (view.bias) {
    std::vector<float> bias(static_cast<std::size_t>(view.out_features));
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = dense_element(*view.bias, static_cast<std::int64_t>(i));
    matrix.bias = put(bias.data(), bias.size() * sizeof(float)) / sizeof(float);
  }
  return matrix;
}

}  // namespace

std::size_t device_bytes(const LinearView& view) {
  if (const TrellisView* trellis = view.trellis()) {
    const auto weights = static_cast<std::size_t>(trellis->in_features * trellis->out_features * trellis->bits / 8);
    return aligned(weights) + aligned(static_cast<std::size_t>(trellis->in_features) * 2) +
           aligned(static_cast<std::size_t>(trellis->out_features) * 2) + bias_bytes(view);
  }
  return aligned(static_cast<std::size_t>(view.in_features * view.out_features) * size_of(view.dense()->dtype)) +
         bias_bytes(view);
}

BoundMatrices::BoundMatrices(Device& device, std::span<const LinearView* const> views, std::string_view what)
    : arenas_(device, sizes_of(views), what) {
  for (std::size_t i = 0; i < views.size(); ++i) {
    matrices_.push_back(load(arenas_, arenas_.place(i), *views[i]));
    kinds_ |= 1u << matrices_.back().kind;
  }
  arenas_.seal();
  table_ = device.allocate(matrices_.size() * sizeof(Matrix), what);
  check(clEnqueueWriteBuffer(device.queue(), table_.get(), CL_TRUE, 0, matrices_.size() * sizeof(Matrix),
                             matrices_.data(), 0, nullptr, nullptr),
        "describing weights to the device");
}

std::string matrix_options(const Device& device, std::uint32_t kinds, const Variant& variant, bool wide) {
  const bool intel = device.facts().gpu && device.facts().vendor.find("Intel") != std::string::npos;
  return fmt::format("{} -DKINDS={:#x} -DROWS={} -DSLAB={} -DARITHMETIC={} -DBYTES={}{}", device.base_options(), kinds,
                     variant.rows, variant.slab, static_cast<int>(variant.arithmetic), variant.bytes,
                     wide && intel ? " -cl-intel-256-GRF-per-thread" : "");
}

}  // namespace pergola::opencl
