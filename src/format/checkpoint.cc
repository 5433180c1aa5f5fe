#include "format/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/half.h"
#include "format/fp8.h"
#include "format/linear_slices.h"
#include "format/mxfp4.h"
#include "format/trellis_tensors.h"
#include "trellis/decode.h"
#include "trellis/tile.h"

namespace pergola {

/// What views point at that is not in the files as it is needed. Node-based: vectors stay where they are.
struct Checkpoint::Storage {
  std::mutex mutex;
  std::unordered_map<std::string, std::vector<Half>> vectors;  ///< expanded sign words, by the name of their tensor
  std::unordered_map<std::string, std::vector<std::byte>> parts;

  /// The bytes under this name, made by `fill` when they are asked for first.
  template <typename Fill>
  std::span<const std::byte> part(const std::string& name, std::size_t size, const Fill& fill) {
    const std::lock_guard lock(mutex);
    std::vector<std::byte>& bytes = parts[name];
    if (bytes.empty()) {
      std::vector<std::byte> filled(size);
      fill(filled.data());
      bytes = std::move(filled);
    }
    return bytes;
  }

  std::span<const std::byte> expand(const TensorEntry& words) {
    const std::lock_guard lock(mutex);
    std::vector<Half>& vector = vectors[words.name];
    if (vector.empty()) {
      vector.reserve(static_cast<std::size_t>(words.elements()) * 16);
      for (std::size_t at = 0; at < words.bytes.size(); at += sizeof(std::uint16_t)) {
        std::uint16_t word = 0;
        std::memcpy(&word, words.bytes.data() + at, sizeof(word));
        for (int bit = 0; bit < 16; ++bit)
          vector.push_back({static_cast<std::uint16_t>((word >> bit) & 1 ? 0xBC00 : 0x3C00)});  // -1, +1
      }
    }
    return std::as_bytes(std::span(vector));
  }
};

namespace {

/// Throws Error when there is no folder of this name.
void check_folder(const std::filesystem::path& folder) {
  std::error_code error;
  const auto type = std::filesystem::status(folder, error).type();
  if (type == std::filesystem::file_type::not_found) fail({.file = folder.string()}, "there is no such folder");
  if (error) fail({.file = folder.string()}, "cannot read the folder: {}", error.message());
  if (type != std::filesystem::file_type::directory)
    fail({.file = folder.string()}, "this is not a folder; give the folder of the model");
}

Config load_config(const std::filesystem::path& folder) {
  check_folder(folder);
  const auto path = folder / "config.json";
  std::error_code error;
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) {
    fail({.file = folder.string()}, "this is not a model folder: it holds no config.json");
  }
  return Config::load(path);
}

/// The folder's safetensors files in the order of their names; hidden files are left out.
std::vector<std::filesystem::path> list_tensor_files(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const auto& path = entry->path();
    if (path.extension() == ".safetensors" && !path.filename().string().starts_with('.')) files.push_back(path);
  }
  if (error) fail({.file = folder.string()}, "cannot read the folder: {}", error.message());
  if (files.empty()) fail({.file = folder.string()}, "this is not a model folder: it holds no *.safetensors file");
  std::sort(files.begin(), files.end());
  return files;
}

/// Whether a stored width can stand for a logical one: equal, or padded to the next multiple of 128.
bool covers(std::int64_t stored, std::int64_t logical) {
  return logical <= stored && stored - logical < kHadamardBlock;
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& folder)
    : folder_(folder),
      config_(load_config(folder)),
      tensors_(list_tensor_files(folder)),
      storage_(std::make_unique<Storage>()) {
  for (const TensorEntry& entry : entries()) {
    if (const auto key = trellis_key(entry.name); !key.empty()) trellis_keys_.push_back(key);
  }
  std::sort(trellis_keys_.begin(), trellis_keys_.end());
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

const TensorEntry& Checkpoint::require(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) fail({.file = folder_.string(), .tensor = std::string(name)}, "the tensor is missing");
  return *entry;
}

DenseView Checkpoint::dense(std::string_view name, std::initializer_list<std::int64_t> shape) const {
  const TensorEntry& entry = require(name);
  const Where where{.file = tensors_.path_of(entry).string(), .tensor = entry.name};
  if (!is_float_weight(entry.dtype)) fail(where, "expected F32, F16 or BF16, found {}", name_of(entry.dtype));
  if (!std::equal(shape.begin(), shape.end(), entry.shape.begin(), entry.shape.end())) {
    fail(where, "expected shape {}, found {}", shape_text({shape.begin(), shape.size()}), shape_text(entry.shape));
  }
  const std::int64_t rows = shape.size() > 1 ? *shape.begin() : 1;
  return {entry.dtype, rows, rows == 0 ? 0 : entry.elements() / rows, entry.bytes};
}

bool Checkpoint::has_linear(std::string_view key) const {
  for (const std::string_view suffix : {".trellis", ".weight", ".suh", ".svh", ".su", ".sv"}) {
    if (find(std::string(key).append(suffix)) != nullptr) return true;
  }
  return false;
}

std::string_view Checkpoint::trellis_below(std::string_view prefix) const {
  const std::string start = std::string(prefix) + '.';
  const auto place = std::lower_bound(trellis_keys_.begin(), trellis_keys_.end(), std::string_view(start));
  return place != trellis_keys_.end() && place->starts_with(start) ? *place : std::string_view{};
}

DenseView Checkpoint::dense_linear(std::string_view key, std::int64_t in, std::int64_t out) const {
  const std::string name = std::string(key) + ".weight";
  const TensorEntry* found = find(name);
  const Where missing{.file = folder_.string(), .tensor = std::string(key)};
  for (const std::string_view suffix : {".suh", ".svh", ".su", ".sv"}) {
    if (find(std::string(key).append(suffix)) != nullptr)
      fail(missing, "{}{} is there, but {}.trellis is missing", key, suffix, key);
  }
  if (const auto below = trellis_below(key); !below.empty()) {
    fail(missing, "the linear is not stored at this name; there is a trellis below it, {}", below);
  }
  if (found == nullptr) fail(missing, "the linear is missing: there is neither {}.trellis nor {}", key, name);
  const TensorEntry& entry = *found;
  const Where where{.file = tensors_.path_of(entry).string(), .tensor = name};
  const bool fp8 = entry.dtype == DType::f8_e4m3;
  if (!is_float_weight(entry.dtype) && !fp8)
    fail(where, "expected F32, F16, BF16 or F8_E4M3, found {}", name_of(entry.dtype));
  const bool fits = entry.shape.size() == 2 && entry.shape[1] == in &&
                    (entry.shape[0] == out || (entry.shape[0] % kHadamardBlock == 0 && covers(entry.shape[0], out)));
  if (!fits) fail(where, "expected shape [{}, {}], found {}", out, in, shape_text(entry.shape));
  if (fp8) return fp8_linear(entry, out, in);
  return {entry.dtype, out, in, entry.bytes.first(static_cast<std::size_t>(out * in) * size_of(entry.dtype))};
}

/// One scale for the whole tensor, one a row ([out, 1]), or one for each block of 128 x 128: `weight_scale_inv` and
/// `weight_scale` both are what a stored value is multiplied by.
DenseView Checkpoint::fp8_linear(const TensorEntry& entry, std::int64_t out, std::int64_t in) const {
  constexpr std::int64_t kBlock = 128;
  const Where where{.file = tensors_.path_of(entry).string(), .tensor = entry.name};
  const TensorEntry* scale = find(entry.name + "_scale_inv");
  if (scale == nullptr) scale = find(entry.name + "_scale");
  if (scale == nullptr) fail(where, "fp8 weights need {}_scale_inv or {}_scale", entry.name, entry.name);
  const Where at_scale{.file = tensors_.path_of(*scale).string(), .tensor = scale->name};
  if (!is_float_weight(scale->dtype)) fail(at_scale, "expected F32, F16 or BF16, found {}", name_of(scale->dtype));
  const std::int64_t rows = entry.shape[0], columns = (in + kBlock - 1) / kBlock;
  const bool whole = scale->elements() == 1, by_row = !whole && scale->elements() == rows && scale->shape[0] == rows,
             blocks = scale->shape == std::vector<std::int64_t>{(rows + kBlock - 1) / kBlock, columns};
  if (!whole && !by_row && !blocks)
    fail(at_scale, "expected one scale, one a row or [{}, {}] for blocks of {}, found shape {}",
         (rows + kBlock - 1) / kBlock, columns, kBlock, shape_text(scale->shape));
  const DenseView scales{scale->dtype, 1, scale->elements(), scale->bytes};
  const auto decode = [&](std::byte* to) {
    std::vector<BFloat16> row(static_cast<std::size_t>(in));
    std::vector<float> factors(blocks ? static_cast<std::size_t>(columns) : 1);
    const auto group = static_cast<std::size_t>(blocks ? kBlock : in);
    for (std::int64_t o = 0; o < out; ++o, to += row.size() * sizeof(BFloat16)) {
      for (std::size_t b = 0; b < factors.size(); ++b) {
        const std::int64_t index = blocks ? o / kBlock * columns + static_cast<std::int64_t>(b) : by_row ? o : 0;
        factors[b] = dense_element(scales, index);
      }
      if (!decode_fp8_row(entry.bytes.subspan(static_cast<std::size_t>(o * in), row.size()), factors, group, row))
        fail(where, "row {} holds a value that is no finite number", o);
      std::memcpy(to, row.data(), row.size() * sizeof(BFloat16));
    }
  };
  return {DType::bf16, out, in,
          storage_->part(entry.name, static_cast<std::size_t>(out * in) * sizeof(BFloat16), decode)};
}

LinearView Checkpoint::linear(std::string_view key, std::int64_t in, std::int64_t out) const {
  assert(in > 0 && out > 0);
  LinearView view{.name = std::string(key), .in_features = in, .out_features = out};
  std::int64_t stored_out = out;
  const TensorEntry* trellis = find(view.name + ".trellis");
  if (trellis == nullptr) {
    view.weight = dense_linear(key, in, out);
  } else {
    const TrellisTensors parts = find_trellis(tensors_, key);
    const Where where{.file = tensors_.path_of(*trellis).string(), .tensor = trellis->name};
    if (find(view.name + ".weight") != nullptr)
      fail(where, "there is also a dense {}.weight; which one holds is not clear", key);
    if (!covers(parts.in_features, in) || !covers(parts.out_features, out)) {
      fail(where, "stored widths {} x {} do not fit the model's {} x {} (in x out)", parts.in_features,
           parts.out_features, in, out);
    }
    stored_out = parts.out_features;
    view.weight = TrellisView{.in_features = parts.in_features,
                              .out_features = parts.out_features,
                              .bits = parts.bits,
                              .codebook = parts.codebook,
                              .trellis = trellis->bytes,
                              .suh = parts.suh != nullptr ? parts.suh->bytes : storage_->expand(*parts.su),
                              .svh = parts.svh != nullptr ? parts.svh->bytes : storage_->expand(*parts.sv)};
  }
  if (const TensorEntry* bias = find(view.name + ".bias")) {
    const Where where{.file = tensors_.path_of(*bias).string(), .tensor = bias->name};
    if (!is_float_weight(bias->dtype)) fail(where, "expected F32, F16 or BF16, found {}", name_of(bias->dtype));
    if (bias->shape.size() != 1 || (bias->shape[0] != out && bias->shape[0] != stored_out)) {
      fail(where, "expected shape [{}], found {}", out, shape_text(bias->shape));
    }
    view.bias = DenseView{bias->dtype, 1, out, bias->bytes.first(static_cast<std::size_t>(out) * size_of(bias->dtype))};
  }
  return view;
}

void Checkpoint::check_marker(const LinearView& linear) const {
  const TrellisView* trellis = linear.trellis();
  if (trellis == nullptr || trellis->codebook == Codebook::three_inst) return;
  const TensorEntry& marker = require(fmt::format("{}.{}", linear.name, name_of(trellis->codebook)));
  std::uint32_t value = 0;
  std::memcpy(&value, marker.bytes.data(), sizeof(value));
  const std::uint32_t expected = trellis->codebook == Codebook::mcg ? kMcgMultiplier : kMul1Multiplier;
  if (value != expected) {
    fail({.file = tensors_.path_of(marker).string(), .tensor = marker.name, .offset = marker.offset},
         "multiplier {:#010x} is not the {:#010x} of codebook {}; experimental codebooks are not supported", value,
         expected, name_of(trellis->codebook));
  }
}

LinearView Checkpoint::fused_expert(std::string_view tensor, std::int64_t expert, std::int64_t first_row,
                                    std::int64_t rows, std::int64_t in) const {
  assert(expert >= 0 && first_row >= 0 && rows > 0 && in > 0);
  if (find(tensor) == nullptr) {
    if (const auto below = trellis_below(tensor); !below.empty()) {
      fail({.file = folder_.string(), .tensor = std::string(tensor)},
           "the experts are not fused; there is a trellis below this name, {}", below);
    }
  }
  const TensorEntry& entry = require(tensor);
  const Where where{.file = tensors_.path_of(entry).string(), .tensor = entry.name};
  if (!is_float_weight(entry.dtype)) fail(where, "expected F32, F16 or BF16, found {}", name_of(entry.dtype));
  if (entry.shape.size() != 3 || entry.shape[2] != in || entry.shape[1] < first_row + rows ||
      entry.shape[0] <= expert) {
    fail(where, "expected at least shape [{}, {}, {}], found {}", expert + 1, first_row + rows, in,
         shape_text(entry.shape));
  }
  const auto row_bytes = static_cast<std::size_t>(in) * size_of(entry.dtype);
  const auto start = static_cast<std::size_t>(expert * entry.shape[1] + first_row) * row_bytes;
  return {.name = fmt::format("{}[{}]", tensor, expert),
          .in_features = in,
          .out_features = rows,
          .weight =
              DenseView{entry.dtype, rows, in, entry.bytes.subspan(start, static_cast<std::size_t>(rows) * row_bytes)},
          .bias = std::nullopt};
}

LinearView Checkpoint::select_outputs(const LinearView& linear, std::span<const OutputRange> ranges) const {
  return pergola::select_outputs(linear, ranges, folder_.string(),
                                 [this](const auto&... part) { return storage_->part(part...); });
}

/// Elements first, first + step, ... of one expert's row of [experts, step * out].
DenseView Checkpoint::expert_bias(std::string_view tensor, std::int64_t experts, std::int64_t expert,
                                  std::int64_t first, std::int64_t step, std::int64_t out) const {
  const DenseView all = dense(tensor, {experts, step * out});
  const std::size_t size = size_of(all.dtype);
  const auto bytes = storage_->part(fmt::format("{}[{}].{}", tensor, expert, first),
                                    static_cast<std::size_t>(out) * size, [&](std::byte* to) {
                                      for (std::int64_t o = 0; o < out; ++o, to += size) {
                                        const auto from = static_cast<std::size_t>((expert * out + o) * step + first);
                                        std::memcpy(to, all.bytes.data() + from * size, size);
                                      }
                                    });
  return {all.dtype, 1, out, bytes};
}

LinearView Checkpoint::transposed_expert(std::string_view tensor, std::string_view bias, std::int64_t experts,
                                         std::int64_t expert, std::int64_t first_column, std::int64_t step,
                                         std::int64_t out, std::int64_t in) const {
  const std::int64_t width = step * out;
  const DenseView fused = dense(tensor, {experts, in, width});
  const std::size_t element = size_of(fused.dtype);
  const std::string name = fmt::format("{}[{}].{}", tensor, expert, first_column);
  LinearView view{.name = name, .in_features = in, .out_features = out};
  const auto copy = [&](const DenseView& from, std::int64_t row, std::int64_t column, std::byte* to) {
    const std::size_t size = size_of(from.dtype);
    std::memcpy(to, from.bytes.data() + static_cast<std::size_t>(row * width + first_column + column * step) * size,
                size);
  };
  view.weight = DenseView{fused.dtype, out, in,
                          storage_->part(name, static_cast<std::size_t>(out * in) * element, [&](std::byte* to) {
                            for (std::int64_t o = 0; o < out; ++o) {
                              for (std::int64_t i = 0; i < in; ++i, to += element) copy(fused, expert * in + i, o, to);
                            }
                          })};
  if (!bias.empty()) view.bias = expert_bias(bias, experts, expert, first_column, step, out);
  return view;
}

LinearView Checkpoint::mxfp4_expert(std::string_view tensor, std::string_view bias, std::int64_t experts,
                                    std::int64_t expert, std::int64_t first_row, std::int64_t step, std::int64_t out,
                                    std::int64_t in) const {
  const auto bytes_of = [&](const char* suffix, std::vector<std::int64_t> shape) {
    const TensorEntry& entry = require(std::string(tensor) + suffix);
    const Where where{.file = tensors_.path_of(entry).string(), .tensor = entry.name};
    if (entry.dtype != DType::u8) fail(where, "expected U8, found {}", name_of(entry.dtype));
    if (entry.shape != shape) fail(where, "expected shape {}, found {}", shape_text(shape), shape_text(entry.shape));
    return entry.bytes;
  };
  if (in % kMxfp4Block != 0)
    fail({.file = folder_.string(), .tensor = std::string(tensor)}, "{} inputs are no whole blocks of {}", in,
         kMxfp4Block);
  const std::int64_t rows = step * out, groups = in / kMxfp4Block;
  const auto blocks = bytes_of("_blocks", {experts, rows, groups, kMxfp4Block / 2});
  const auto scales = bytes_of("_scales", {experts, rows, groups});
  const std::string name = fmt::format("{}[{}].{}", tensor, expert, first_row);
  LinearView view{.name = name, .in_features = in, .out_features = out};
  const auto decode = [&](std::byte* to) {
    std::vector<BFloat16> row(static_cast<std::size_t>(in));
    for (std::int64_t o = 0; o < out; ++o, to += row.size() * sizeof(BFloat16)) {
      const auto at = static_cast<std::size_t>((expert * rows + first_row + o * step) * groups);
      const auto count = static_cast<std::size_t>(groups);
      constexpr std::size_t kBytes = kMxfp4Block / 2;
      if (!decode_mxfp4(blocks.subspan(at * kBytes, count * kBytes), scales.subspan(at, count), row))
        fail({.file = folder_.string(), .tensor = std::string(tensor) + "_scales"},
             "a scale of expert {} is above 252: the weight is no finite number", expert);
      std::memcpy(to, row.data(), row.size() * sizeof(BFloat16));
    }
  };
  view.weight = DenseView{DType::bf16, out, in,
                          storage_->part(name, static_cast<std::size_t>(out * in) * sizeof(BFloat16), decode)};
  if (!bias.empty()) view.bias = expert_bias(bias, experts, expert, first_row, step, out);
  return view;
}

void Checkpoint::release_pages(std::span<const std::byte> bytes) const {
  for (const MappedFile& file : tensors_.files()) {
    const auto all = file.bytes();
    if (!bytes.empty() && !all.empty() && bytes.data() >= all.data() &&
        bytes.data() + bytes.size() <= all.data() + all.size()) {
      return file.release(bytes);
    }
  }
}

void Checkpoint::release_pages() const {
  for (const MappedFile& file : tensors_.files()) file.release(file.bytes());
}

}  // namespace pergola
