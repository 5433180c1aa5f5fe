#include "eval/token_file.h"

#include <cstring>
#include <limits>

#include "base/error.h"
#include "format/safetensors.h"

namespace pergola {
namespace {

template <typename Int>
void append_ids(const TensorEntry& entry, const Where& where, std::vector<std::int32_t>& ids) {
  for (std::size_t at = 0; at < entry.bytes.size(); at += sizeof(Int)) {
    Int id;
    std::memcpy(&id, entry.bytes.data() + at, sizeof id);
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) fail(where, "{} is not a token id", id);
    ids.push_back(static_cast<std::int32_t>(id));
  }
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path) {
  const TensorTable table({path});
  const Where where{.file = path.string(), .tensor = "input_ids"};
  const TensorEntry* entry = table.find(where.tensor);
  if (entry == nullptr) fail(where, "the tensor is missing");
  if (entry->shape.empty() || entry->shape.size() > 2 || entry->elements() == 0) {
    fail(where, "the shape is {}, not [windows, length]", shape_text(entry->shape));
  }
  length_ = entry->shape.back();
  ids_.reserve(static_cast<std::size_t>(entry->elements()));
  if (entry->dtype == DType::i32) {
    append_ids<std::int32_t>(*entry, where, ids_);
  } else if (entry->dtype == DType::i64) {
    append_ids<std::int64_t>(*entry, where, ids_);
  } else {
    fail(where, "the type is {}, not I32 or I64", name_of(entry->dtype));
  }
}

}  // namespace pergola
