#include "format/trellis_tensors.h"

#include "base/error.h"

namespace pergola {
namespace {

constexpr std::string_view kTrellisSuffix = ".trellis";
constexpr std::int64_t kTile = 16;
constexpr int kMaxBits = 8;

/// Finds and checks the parts of one linear; every refusal names the file and the tensor.
class Finder {
 public:
  Finder(const TensorTable& tensors, std::string_view key) : tensors_(tensors), key_(key) {}

  const TensorEntry* find(std::string_view suffix) {
    name_.assign(key_).append(suffix);
    return tensors_.find(name_);
  }

  template <typename... Args>
  [[noreturn]] void refuse(const TensorEntry& entry, fmt::format_string<Args...> format, Args&&... args) const {
    fail({.file = tensors_.path_of(entry).string(), .tensor = entry.name}, format, std::forward<Args>(args)...);
  }

  void read_grid(TrellisTensors& linear) {
    const TensorEntry& trellis = *linear.trellis;
    if (trellis.dtype != DType::i16 && trellis.dtype != DType::u16)
      refuse(trellis, "a trellis is I16, not {}", name_of(trellis.dtype));
    if (trellis.shape.size() != 3)
      refuse(trellis, "a trellis has 3 dimensions, not shape {}", shape_text(trellis.shape));
    const std::int64_t words = trellis.shape[2];
    if (words % kTile != 0 || words < kTile || words > kTile * kMaxBits) {
      refuse(trellis, "last dimension {} is not 16 times a K of 1 to {}", words, kMaxBits);
    }
    linear.bits = static_cast<int>(words / kTile);
    linear.in_features = width(trellis, 0);
    linear.out_features = width(trellis, 1);
  }

  /// The sign and scale vector `name`, or the legacy sign words `legacy` when there is none.
  void read_signs(std::string_view name, std::string_view legacy, std::int64_t width, const TensorEntry*& signs,
                  const TensorEntry*& words) {
    signs = find(name);
    if (signs != nullptr) return check_vector(*signs, DType::f16, width);
    words = find(legacy);
    if (words == nullptr) {
      const TensorEntry& trellis = *find(kTrellisSuffix);
      refuse(trellis, "{}{} is missing", key_, name);
    }
    check_vector(*words, DType::i16, width / kTile);
  }

  void read_codebook(TrellisTensors& linear) {
    const TensorEntry* mcg = find(".mcg");
    const TensorEntry* mul1 = find(".mul1");
    if (mcg != nullptr && mul1 != nullptr) refuse(*linear.trellis, "both codebook markers, mcg and mul1, are present");
    if (mcg == nullptr && mul1 == nullptr) return;
    linear.codebook = mcg != nullptr ? Codebook::mcg : Codebook::mul1;
    const TensorEntry& marker = mcg != nullptr ? *mcg : *mul1;
    if ((marker.dtype != DType::i32 && marker.dtype != DType::u32) || marker.elements() != 1) {
      refuse(marker, "a codebook marker is one I32, not {} {}", name_of(marker.dtype), shape_text(marker.shape));
    }
  }

 private:
  std::int64_t width(const TensorEntry& trellis, std::size_t dimension) const {
    const std::int64_t tiles = trellis.shape[dimension];
    if (tiles < 1 || tiles % (kHadamardBlock / kTile) != 0) {
      refuse(trellis, "{} tiles of 16 in dimension {} do not make a multiple of {} features", tiles, dimension,
             kHadamardBlock);
    }
    return tiles * kTile;
  }

  void check_vector(const TensorEntry& entry, DType dtype, std::int64_t length) const {
    if (entry.dtype != dtype) refuse(entry, "expected {}, found {}", name_of(dtype), name_of(entry.dtype));
    if (entry.shape.size() != 1 || entry.shape[0] != length)
      refuse(entry, "expected shape [{}], found {}", length, shape_text(entry.shape));
  }

  const TensorTable& tensors_;
  std::string_view key_;
  std::string name_;
};

}  // namespace

TrellisTensors find_trellis(const TensorTable& tensors, std::string_view key) {
  Finder finder(tensors, key);
  TrellisTensors linear;
  linear.trellis = finder.find(kTrellisSuffix);
  finder.read_grid(linear);
  finder.read_signs(".suh", ".su", linear.in_features, linear.suh, linear.su);
  finder.read_signs(".svh", ".sv", linear.out_features, linear.svh, linear.sv);
  finder.read_codebook(linear);
  return linear;
}

std::string_view trellis_key(std::string_view name) {
  return name.ends_with(kTrellisSuffix) ? name.substr(0, name.size() - kTrellisSuffix.size()) : std::string_view{};
}

}  // namespace pergola
