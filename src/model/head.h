#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "trellis/linear_view.h"

namespace pergola {

/// Logits of chosen rows of the normed residual stream.
class Head {
 public:
  /// `cap` > 0 caps the logits (Backend::soft_cap).
  Head(const LinearView& head, float cap, Backend& backend);

  /// The head that this was made of gives the columns columns[communicator.rank()] of the logits; the other ranks give
  /// the others. It outlives this.
  void share(std::vector<IndexRange> columns, Communicator& communicator) {
    columns_ = std::move(columns);
    communicator_ = &communicator;
  }

  /// logits [n, vocab] f32 of the rows `indices` (i32 [1, n], n at most max_rows) of x.
  void forward(const Tensor& x, const Tensor& indices, const Tensor& logits);

 private:
  Backend& backend_;
  float cap_;
  std::unique_ptr<LinearGroup> linear_;
  std::unique_ptr<Buffer> buffer_;
  Tensor gathered_;  ///< [max_rows, hidden]
  std::vector<IndexRange> columns_;
  Communicator* communicator_ = nullptr;
};

}  // namespace pergola
