#pragma once

#include <memory>

#include "backend/backend.h"
#include "trellis/linear_view.h"

namespace pergola {

/// Logits of chosen rows of the normed residual stream.
class Head {
 public:
  /// `cap` > 0 caps the logits (Backend::soft_cap).
  Head(const LinearView& head, float cap, Backend& backend);

  /// logits [n, vocab] f32 of the rows `indices` (i32 [1, n], n at most max_rows) of x.
  void forward(const Tensor& x, const Tensor& indices, const Tensor& logits);

 private:
  Backend& backend_;
  float cap_;
  std::unique_ptr<LinearGroup> linear_;
  std::unique_ptr<Buffer> buffer_;
  Tensor gathered_;  ///< [max_rows, hidden]
};

}  // namespace pergola
