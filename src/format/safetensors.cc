#include "format/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "format/json.h"

namespace pergola {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors are little-endian and are used where they are mapped");

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::uint64_t kLengthBytes = 8;

/// Receives the header's JSON events and builds the entries; refuses everything that is not
/// {name: {"dtype": text, "shape": [counts], "data_offsets": [begin, end]}, ...} with optional "__metadata__" and
/// further members, which are skipped.
class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> data, std::uint64_t data_start, const std::string& file)
      : data_(data), data_start_(data_start), file_(file) {}

  std::vector<TensorEntry> take() { return std::move(entries_); }

  // The interface of nlohmann's SAX parser. An event returns true to go on; what is wrong is thrown.
  bool null() { return scalar(); }
  bool boolean(bool) { return scalar(); }
  bool binary(nlohmann::json::binary_t&) { return scalar(); }
  bool number_float(double, const std::string& text) {
    if (in_list()) refuse("{} in '{}' is not a whole number in range", text, key_);
    return scalar();
  }
  bool number_integer(std::int64_t value) {
    if (in_list()) refuse("{} in '{}' is negative", value, key_);
    return scalar();
  }
  bool number_unsigned(std::uint64_t value) {
    if (!in_list()) return scalar();
    if (member_ == Member::offsets) {
      if (offset_count_ == 2) refuse("'data_offsets' has more than two numbers");
      offsets_[offset_count_++] = value;
      return true;
    }
    if (value > static_cast<std::uint64_t>(INT64_MAX)) refuse("dimension {} is too large", value);
    if (entry_.shape.size() == kMaxRank) refuse("more than {} dimensions", kMaxRank);
    entry_.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool string(std::string& text) {
    if (depth_ == 2 && member_ == Member::dtype) {
      const auto type = dtype_from_name(text);
      if (!type) refuse("element type '{}' is not known", text.substr(0, 40));
      entry_.dtype = *type;
      has_dtype_ = true;
      return true;
    }
    return scalar();
  }
  bool start_object(std::size_t) {
    if (++depth_ == 2) begin_tensor();
    if (depth_ == 3) expect_skipped();
    return check_depth();
  }
  bool end_object() {
    if (depth_-- == 2 && !in_metadata_) finish_tensor();
    return true;
  }
  bool start_array(std::size_t) {
    if (++depth_ == 1) refuse("the header is not an object");
    if (depth_ == 2) refuse("the value of this name is not an object");
    if (depth_ == 3 && member_ == Member::shape) has_shape_ = true;
    if (depth_ == 3 && member_ == Member::offsets) has_offsets_ = true;
    if (depth_ == 3 && member_ == Member::dtype) expect_skipped();
    if (depth_ == 4) expect_skipped();
    return check_depth();
  }
  bool end_array() {
    --depth_;
    return true;
  }
  bool key(std::string& text) {
    if (depth_ == 1) {
      entry_ = {};
      entry_.name = std::move(text);
      in_metadata_ = entry_.name == kMetadata;
    } else if (depth_ == 2) {
      set_member(text);
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) {
    fail({.file = file_, .offset = kLengthBytes + position}, "the header is not valid JSON: {}",
         json_error_reason(error.what()));
  }

 private:
  enum class Member : std::uint8_t { dtype, shape, offsets, other };
  static constexpr int kMaxDepth = 16;
  static constexpr std::size_t kMaxRank = 32;

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail({.file = file_, .tensor = entry_.name}, format, std::forward<Args>(args)...);
  }

  /// Whether the parser is directly inside the shape or the offsets of a tensor.
  bool in_list() const { return depth_ == 3 && (member_ == Member::shape || member_ == Member::offsets); }

  bool check_depth() const {
    if (depth_ > kMaxDepth) refuse("the header is nested deeper than {} levels", kMaxDepth);
    return true;
  }

  /// A value that carries nothing for us: legal in metadata and in unknown members only.
  bool scalar() const {
    if (depth_ == 0) refuse("the header is not an object");
    if (depth_ == 1) refuse("the value of this name is not an object");
    expect_skipped();
    return true;
  }

  void expect_skipped() const {
    if (!in_metadata_ && member_ != Member::other) refuse("'{}' has a value of the wrong type", key_);
  }

  void set_member(const std::string& text) {
    member_ = Member::other;
    if (in_metadata_) return;
    const auto once = [&](Member member, bool seen) {
      if (seen) refuse("'{}' occurs twice", text);
      member_ = member;
      key_ = text;
    };
    if (text == "dtype") once(Member::dtype, has_dtype_);
    if (text == "shape") once(Member::shape, has_shape_);
    if (text == "data_offsets") once(Member::offsets, has_offsets_);
  }

  void begin_tensor() {
    member_ = Member::other;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    offset_count_ = 0;
  }

  void finish_tensor() {
    if (!has_dtype_) refuse("'dtype' is missing");
    if (!has_shape_) refuse("'shape' is missing");
    if (offset_count_ != 2) refuse("'data_offsets' needs two numbers");
    const auto [begin, end] = std::pair(offsets_[0], offsets_[1]);
    if (begin > end) refuse("data offsets [{}, {}] are reversed", begin, end);
    if (end > data_.size()) {
      refuse("data offsets [{}, {}] reach beyond the {} bytes of data in the file; is it truncated?", begin, end,
             data_.size());
    }
    std::uint64_t expected = size_of(entry_.dtype);
    bool overflow = false;
    for (const std::int64_t dimension : entry_.shape) {
      overflow |= __builtin_mul_overflow(expected, static_cast<std::uint64_t>(dimension), &expected);
    }
    if (overflow || expected != end - begin) {
      refuse("shape {} of {} does not match its span of {} bytes", shape_text(entry_.shape), name_of(entry_.dtype),
             end - begin);
    }
    entry_.bytes = data_.subspan(begin, end - begin);
    entry_.offset = data_start_ + begin;
    entries_.push_back(std::move(entry_));
    entry_ = {};
  }

  std::span<const std::byte> data_;
  std::uint64_t data_start_;
  const std::string& file_;
  std::vector<TensorEntry> entries_;

  int depth_ = 0;
  bool in_metadata_ = false;
  TensorEntry entry_;  ///< the one being read
  Member member_ = Member::other;
  std::string key_;  ///< of the member, if it is one we know
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  int offset_count_ = 0;
  std::uint64_t offsets_[2] = {0, 0};
};

void check_overlap(const std::vector<TensorEntry>& entries, const std::string& file) {
  std::vector<const TensorEntry*> order;
  order.reserve(entries.size());
  for (const TensorEntry& entry : entries) {
    if (!entry.bytes.empty()) order.push_back(&entry);
  }
  const auto by_offset = [](const TensorEntry* a, const TensorEntry* b) { return a->offset < b->offset; };
  if (!std::is_sorted(order.begin(), order.end(), by_offset)) std::sort(order.begin(), order.end(), by_offset);
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TensorEntry& before = *order[i - 1];
    if (before.offset + before.bytes.size() > order[i]->offset) {
      fail({.file = file, .tensor = order[i]->name, .offset = order[i]->offset}, "its bytes overlap those of {}",
           before.name);
    }
  }
}

void check_names(const std::vector<TensorEntry>& entries, const std::string& file) {
  std::unordered_set<std::string_view> names;
  names.reserve(entries.size());
  for (const TensorEntry& entry : entries) {
    if (!names.insert(entry.name).second) fail({.file = file, .tensor = entry.name}, "the name occurs twice");
  }
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::vector<TensorEntry> parse_safetensors(std::span<const std::byte> content, const std::string& file) {
  if (content.size() < kLengthBytes)
    fail({.file = file}, "{} bytes are too few for a safetensors file", content.size());
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  if (text.starts_with("version https://git-lfs"))
    fail({.file = file}, "this is a Git LFS pointer, not the tensors; run 'git lfs pull'");
  std::uint64_t length = 0;
  std::memcpy(&length, content.data(), kLengthBytes);
  if (length > content.size() - kLengthBytes) {
    fail({.file = file},
         "the header's length {} is beyond the file's {} bytes; is it truncated, or not a safetensors file?", length,
         content.size());
  }
  if (length > kMaxHeaderBytes)
    fail({.file = file}, "a header of {} bytes is longer than {} bytes", length, kMaxHeaderBytes);
  const std::string_view header = text.substr(kLengthBytes, length);
  if (!header.starts_with('{')) fail({.file = file, .offset = kLengthBytes}, "the header does not start with '{{'");

  HeaderReader reader(content.subspan(kLengthBytes + length), kLengthBytes + length, file);
  nlohmann::json::sax_parse(header.data(), header.data() + header.size(), &reader);
  auto entries = reader.take();
  check_names(entries, file);
  check_overlap(entries, file);
  return entries;
}

TensorTable::TensorTable(const std::vector<std::filesystem::path>& files) {
  for (const auto& path : files) {
    const auto number = static_cast<std::uint32_t>(files_.size());
    files_.emplace_back(path);
    auto entries = parse_safetensors(files_.back().bytes(), path.string());
    for (TensorEntry& entry : entries) entry.file = number;
    entries_.insert(entries_.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
  }
  index_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto [place, added] = index_.emplace(entries_[i].name, i);
    if (!added) {
      fail({.file = path_of(entries_[i]).string(), .tensor = entries_[i].name}, "the name occurs also in {}",
           path_of(entries_[place->second]).string());
    }
  }
}

const TensorEntry* TensorTable::find(std::string_view name) const {
  const auto place = index_.find(name);
  return place == index_.end() ? nullptr : &entries_[place->second];
}

}  // namespace pergola
