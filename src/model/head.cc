#include "model/head.h"

#include <array>

namespace pergola {

Head::Head(const LinearView& head, float cap, Backend& backend)
    : backend_(backend), cap_(cap), linear_(backend.bind_linears(std::array{head})) {
  const DType type = backend.activation_type();
  buffer_ = backend.allocate(static_cast<std::size_t>(backend.max_rows() * head.in_features) * size_of(type),
                             "the head's input");
  gathered_ = {buffer_.get(), 0, type, backend.max_rows(), head.in_features, head.in_features};
}

void Head::forward(const Tensor& x, const Tensor& indices, const Tensor& logits) {
  const Tensor chosen = gathered_.slice_rows(0, indices.columns);
  backend_.gather_rows(x, indices, chosen);
  if (communicator_ == nullptr) {
    backend_.linear(*linear_, chosen, std::array{logits});
  } else {
    const IndexRange own = columns_[static_cast<std::size_t>(communicator_->rank())];
    backend_.linear(*linear_, chosen, std::array{logits.slice_columns(own.first, own.count)});
    communicator_->all_gather(logits, columns_);
  }
  if (cap_ > 0) backend_.soft_cap(logits, cap_);
}

}  // namespace pergola
