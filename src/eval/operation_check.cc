#include "eval/operation_check.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <memory>

#include "base/cpu_features.h"
#include "base/error.h"
#include "eval/random_weights.h"
#include "trellis/tile.h"

namespace pergola {
namespace {

/// Tolerances of docs/numerics.md.
constexpr double kElementwise = 2e-6;  ///< fp32 arithmetic, another order of sums
constexpr double kRecurrent = 2e-5;    ///< fp32 with long chains of dependent sums
constexpr double kDense = 1e-5;        ///< fp32 dot products of a few hundred terms

/// Trellis linears: activations of 12 bits and weights of 10, or both bfloat16 where prefill runs on matrix units.
double trellis_tolerance(const Backend& tested) {
  return tested.info().instruction_set == name_of(Isa::amx) ? 3e-3 : 2e-3;
}

/// Two trellis linears in a row.
double experts_tolerance(const Backend& tested) {
  return 2 * trellis_tolerance(tested);
}

/// Attention reads keys and values as the cache stores them: fp32, rounded to 11 bits in fp16, or to 8.
double attention_tolerance(const Backend& tested) {
  if (tested.cache_type() == DType::i8) return 2e-2;
  return tested.cache_type() == DType::f32 ? kRecurrent : 1e-3;
}

/// The delta rule in fp32, or over prompts in chunks whose operands are rounded to 11 bits.
double delta_tolerance(const Backend& tested) {
  return tested.activation_type() == DType::f32 ? kRecurrent : 2e-3;
}

/// Host values on their way to and from one device.
class DeviceTensor {
 public:
  DeviceTensor(Backend& backend, DType dtype, std::int64_t rows, std::int64_t columns)
      : backend_(backend),
        buffer_(backend.allocate(static_cast<std::size_t>(rows * columns) * size_of(dtype), "a check")) {
    tensor_ = {.buffer = buffer_.get(), .dtype = dtype, .rows = rows, .columns = columns, .stride = columns};
  }
  DeviceTensor(Backend& backend, const std::vector<float>& values, std::int64_t columns)
      : DeviceTensor(backend, DType::f32, static_cast<std::int64_t>(values.size()) / columns, columns) {
    backend.upload(tensor_, values.data());
  }
  DeviceTensor(Backend& backend, const std::vector<std::int32_t>& values, std::int64_t columns)
      : DeviceTensor(backend, DType::i32, static_cast<std::int64_t>(values.size()) / columns, columns) {
    backend.upload(tensor_, values.data());
  }

  operator const Tensor&() const { return tensor_; }  // an operation takes it as it takes a tensor

  std::vector<float> floats() const {
    std::vector<float> values(static_cast<std::size_t>(tensor_.rows * tensor_.columns));
    backend_.download(values.data(), tensor_);
    return values;
  }

 private:
  Backend& backend_;
  std::unique_ptr<Buffer> buffer_;
  Tensor tensor_;
};

using Results = std::vector<float>;

void append(Results& results, const DeviceTensor& tensor) {
  const std::vector<float> values = tensor.floats();
  results.insert(results.end(), values.begin(), values.end());
}

double relative_error(const Results& tested, const Results& reference) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double d = static_cast<double>(tested[i]) - static_cast<double>(reference[i]);
    difference += d * d;
    size += static_cast<double>(reference[i]) * static_cast<double>(reference[i]);
  }
  const double error = std::sqrt(difference / size);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

/// An operation at one shape: computes on whichever backend it is given and returns everything it wrote.
using Case = std::function<Results(Backend&)>;

class Checker {
 public:
  Checker(Backend& tested, Backend& reference) : tested_(tested), reference_(reference) {}

  /// A case that a backend may refuse by an Error (`optional`) is left out then.
  void check(std::string operation, std::string shape, double tolerance, const Case& compute, bool optional = false) {
    OperationCheck result{.operation = std::move(operation), .shape = std::move(shape), .tolerance = tolerance};
    const Results expected = compute(reference_);
    const auto start = std::chrono::steady_clock::now();
    Results found;
    try {
      found = compute(tested_);
    } catch (const Error&) {
      if (optional) return;
      throw;
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    result.error = relative_error(found, expected);
    results_.push_back(std::move(result));
  }

  const Backend& tested() const { return tested_; }

  std::vector<OperationCheck> take() && { return std::move(results_); }

 private:
  Backend& tested_;
  Backend& reference_;
  std::vector<OperationCheck> results_;
};

std::string name_of(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return "silu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::clamped_swiglu:
      return "clamped_swiglu";
  }
  return {};
}

RmsNorm norm_of(const DeviceTensor& weight) {
  return {.weight = weight, .eps = 1e-6f};
}

void check_norms(Checker& checker, RandomWeights& random) {
  for (const std::int64_t width : {96, 200, 2048}) {
    for (const std::int64_t rows : {1, 5}) {
      const std::vector<float> x = random.floats(rows * width);
      const std::vector<float> delta = random.floats(rows * width);
      const std::vector<float> weight = random.floats(width);
      const std::string shape = fmt::format("{} x {}", rows, width);
      checker.check("rms_norm", shape, kElementwise, [&](Backend& backend) {
        const DeviceTensor w(backend, weight, width), in(backend, x, width), out(backend, DType::f32, rows, width);
        backend.rms_norm(norm_of(w), in, out);
        return out.floats();
      });
      checker.check("add_rms_norm", shape, kElementwise, [&](Backend& backend) {
        const DeviceTensor w(backend, weight, width), residual(backend, x, width), d(backend, delta, width),
            out(backend, DType::f32, rows, width);
        backend.add_rms_norm(norm_of(w), residual, d, out);
        Results results = out.floats();
        append(results, residual);
        return results;
      });
      checker.check("soft_cap", shape, kElementwise, [&](Backend& backend) {
        const DeviceTensor in(backend, x, width);
        backend.soft_cap(in, 1.5f);
        return in.floats();
      });
      for (const Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::clamped_swiglu}) {
        checker.check(
            name_of(activation), shape, kElementwise,
            [&](Backend& backend) {
              const DeviceTensor gate(backend, x, width), up(backend, delta, width),
                  out(backend, DType::f32, rows, width);
              backend.gated_activation(activation, gate, up, out);
              return out.floats();
            },
            activation == Activation::clamped_swiglu);
      }
    }
  }
}

void check_copies(Checker& checker, RandomWeights& random) {
  constexpr std::int64_t kWidth = 200;
  const std::vector<std::int32_t> ids{6, 0, 6, 3};
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const DenseView table = random.dense(dtype, 7, kWidth);
    checker.check("embed", fmt::format("4 x {} of {}", kWidth, name_of(dtype)), 0, [&](Backend& backend) {
      const auto bound = backend.bind_embedding(table);
      const DeviceTensor rows(backend, ids, 4), out(backend, DType::f32, 4, kWidth);
      backend.embed(*bound, rows, 1.0f, out);
      return out.floats();
    });
  }
  const std::vector<float> x = random.floats(7 * kWidth);
  checker.check("gather_rows", fmt::format("4 x {}", kWidth), 0, [&](Backend& backend) {
    const DeviceTensor in(backend, x, kWidth), indices(backend, ids, 4), out(backend, DType::f32, 4, kWidth);
    backend.gather_rows(in, indices, out);
    return out.floats();
  });
}

void check_linears(Checker& checker, RandomWeights& random) {
  struct Group {
    std::string name;
    std::int64_t in;
    std::vector<LinearView> members;
  };
  std::vector<Group> groups;
  groups.push_back({"dense bf16 + f16", 200, {random.dense_linear(200, 96), random.dense_linear(200, 40, DType::f16)}});
  groups.push_back(
      {"mixed K and codebooks",
       256,
       {random.trellis_linear(256, 384, 3, Codebook::mul1), random.trellis_linear(256, 128, 5, Codebook::mcg, true),
        random.trellis_linear(256, 256, 4, Codebook::three_inst)}});
  groups.push_back(
      {"padded",
       200,
       {random.trellis_linear(200, 300, 6, Codebook::mul1), random.trellis_linear(200, 72, 2, Codebook::mcg)}});
  groups.push_back(
      {"trellis + dense", 128, {random.trellis_linear(128, 128, 1, Codebook::mul1), random.dense_linear(128, 24)}});
  for (const Group& group : groups) {
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{3}, std::int64_t{17}, kCheckRows}) {
      const std::vector<float> x = random.floats(rows * group.in);
      const bool dense = group.members.front().trellis() == nullptr;
      checker.check("linear", fmt::format("{} rows, {}", rows, group.name),
                    dense ? kDense : trellis_tolerance(checker.tested()), [&](Backend& backend) {
                      const auto bound = backend.bind_linears(group.members);
                      const DeviceTensor in(backend, x, group.in);
                      std::deque<DeviceTensor> outs;
                      std::vector<Tensor> tensors;
                      for (const LinearView& member : group.members)
                        tensors.push_back(outs.emplace_back(backend, DType::f32, rows, member.out_features));
                      backend.linear(*bound, in, tensors);
                      Results results;
                      for (const DeviceTensor& out : outs) append(results, out);
                      return results;
                    });
    }
  }
}

/// Every K of every codebook at the row counts where backends change kernels. The cpu backend has a table of its own
/// (verify_linear_kernels).
void check_kinds(Checker& checker, RandomWeights& random) {
  if (checker.tested().info().backend == "cpu") return;
  constexpr std::int64_t kIn = 384;
  constexpr std::int64_t kOut = 128;
  for (const Codebook codebook : {Codebook::three_inst, Codebook::mcg, Codebook::mul1}) {
    std::vector<LinearView> members;
    for (int bits = kMinBits; bits <= kMaxBits; ++bits)
      members.push_back(random.trellis_linear(kIn, kOut, bits, codebook));
    for (const std::int64_t rows : {1, 2, 8, 17}) {
      const std::vector<float> x = random.floats(rows * kIn);
      checker.check("linear", fmt::format("{} rows, {} K=1..8", rows, name_of(codebook)),
                    trellis_tolerance(checker.tested()), [&](Backend& backend) {
                      const auto bound = backend.bind_linears(members);
                      const DeviceTensor in(backend, x, kIn), out(backend, DType::f32, rows, kMaxBits * kOut);
                      const Tensor& all = out;
                      std::vector<Tensor> outs;
                      for (std::int64_t i = 0; i < kMaxBits; ++i) outs.push_back(all.slice_columns(i * kOut, kOut));
                      backend.linear(*bound, in, outs);
                      return out.floats();
                    });
    }
  }
}

/// Two sequences: rows and first positions of one step.
struct StepShape {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> first;
};

/// The description of a step in device memory. Pages of sequence s are s, s + n, s + 2n, ...; its slot is n - 1 - s.
class DeviceBatch {
 public:
  DeviceBatch(Backend& backend, const StepShape& shape, std::int64_t pages_per_sequence) {
    const auto sequences = static_cast<std::int64_t>(shape.rows.size());
    std::vector<std::int32_t> positions, row_sequence, row_start{0}, slots, page_table;
    for (std::int64_t s = 0; s < sequences; ++s) {
      const auto index = static_cast<std::size_t>(s);
      for (std::int64_t r = 0; r < shape.rows[index]; ++r) {
        positions.push_back(static_cast<std::int32_t>(shape.first[index] + r));
        row_sequence.push_back(static_cast<std::int32_t>(s));
      }
      row_start.push_back(static_cast<std::int32_t>(positions.size()));
      slots.push_back(static_cast<std::int32_t>(sequences - 1 - s));
      for (std::int64_t p = 0; p < pages_per_sequence; ++p)
        page_table.push_back(static_cast<std::int32_t>(s + p * sequences));
      batch_.max_rows_per_sequence = std::max(batch_.max_rows_per_sequence, shape.rows[index]);
    }
    batch_.rows = static_cast<std::int64_t>(positions.size());
    batch_.sequences = sequences;
    batch_.positions = keep(backend, positions, batch_.rows);
    batch_.row_sequence = keep(backend, row_sequence, batch_.rows);
    batch_.row_start = keep(backend, row_start, sequences + 1);
    batch_.slots = keep(backend, slots, sequences);
    batch_.page_table = keep(backend, page_table, pages_per_sequence);
  }

  const Batch& batch() const { return batch_; }

 private:
  Tensor keep(Backend& backend, const std::vector<std::int32_t>& values, std::int64_t columns) {
    return tensors_.emplace_back(backend, values, columns);
  }

  std::deque<DeviceTensor> tensors_;
  Batch batch_;
};

/// A prefill of two sequences of different length, then a step that adds one row to the first and three to the second.
const std::array<StepShape, 2> kSteps{StepShape{{37, 70}, {0, 0}}, StepShape{{1, 3}, {37, 70}}};

void check_attention(Checker& checker, RandomWeights& random) {
  struct Shape {
    int heads, kv_heads, head_dim, rope_dims;
    bool gated, normed, interleaved;
    std::int64_t window = 0;  ///< with a ring as its cache
    float soft_cap = 0;
    bool sinks = false;
    float growth = 0;

    /// What a backend may refuse.
    std::string extras() const {
      std::string text;
      if (window > 0) text += fmt::format(", window {}", window);
      if (soft_cap > 0) text += ", capped";
      if (sinks) text += ", sinks";
      if (growth > 0) text += ", growing queries";
      return text;
    }
  };
  const std::array kShapes{Shape{8, 2, 64, 16, true, true, false},
                           Shape{3, 3, 96, 96, false, false, true},
                           Shape{4, 1, 256, 64, true, true, false},
                           Shape{2, 1, 128, 0, false, true, false},
                           Shape{4, 2, 64, 64, false, false, false, 20},
                           Shape{4, 2, 64, 64, false, false, false, 0, 2.0f},
                           Shape{4, 2, 64, 64, false, false, false, 20, 0, true},
                           Shape{4, 2, 64, 64, false, false, false, 0, 0, false, 0.3f}};
  constexpr std::int64_t kPage = 16;
  constexpr std::int64_t kPages = 5;
  for (const Shape& shape : kShapes) {
    const std::int64_t q_width = std::int64_t{shape.heads} * shape.head_dim * (shape.gated ? 2 : 1);
    const std::int64_t kv_width = std::int64_t{shape.kv_heads} * shape.head_dim;
    const std::int64_t out_width = std::int64_t{shape.heads} * shape.head_dim;
    const std::vector<float> weight = random.floats(shape.head_dim);
    std::vector<float> inv_freq;
    for (int i = 0; i < shape.rope_dims / 2; ++i)
      inv_freq.push_back(std::pow(1e4f, -2.0f * static_cast<float>(i) / static_cast<float>(shape.rope_dims)));
    std::vector<std::array<std::vector<float>, 3>> inputs;
    for (const StepShape& step : kSteps) {
      const std::int64_t rows = step.rows[0] + step.rows[1];
      inputs.push_back({random.floats(rows * q_width), random.floats(rows * kv_width), random.floats(rows * kv_width)});
    }
    const std::string name = fmt::format("{}/{} heads of {}, {} rotated{}", shape.heads, shape.kv_heads, shape.head_dim,
                                         shape.rope_dims, shape.gated ? ", gated" : "") +
                             shape.extras();
    const std::vector<float> sink_scores = random.floats(shape.heads);
    const bool optional = !shape.extras().empty();
    checker.check(
        "attention", name, attention_tolerance(checker.tested()),
        [&](Backend& backend) {
          const DeviceTensor norm_weight(backend, weight, shape.head_dim);
          const std::vector<float> angles = inv_freq.empty() ? std::vector<float>{0} : inv_freq;
          const DeviceTensor frequencies(backend, angles, static_cast<std::int64_t>(angles.size()));
          Attention layer{.heads = shape.heads,
                          .kv_heads = shape.kv_heads,
                          .head_dim = shape.head_dim,
                          .gated = shape.gated,
                          .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim))};
          if (shape.normed) layer.q_norm = layer.k_norm = norm_of(norm_weight);
          layer.rope = {.dims = shape.rope_dims, .interleaved = shape.interleaved};
          if (shape.rope_dims > 0) layer.rope.inv_freq = frequencies;
          const DeviceTensor sinks(backend, sink_scores, shape.heads);
          layer.window = shape.window;
          layer.soft_cap = shape.soft_cap;
          if (shape.sinks) layer.sinks = sinks;
          layer.query_growth = shape.growth;
          layer.query_growth_length = 16;
          backend.prepare(layer);
          const std::int64_t ring = shape.window > 0 ? shape.window + kPages * kPage : 0;
          const std::int64_t cache_rows = 2 * (ring > 0 ? ring : kPages * kPage);
          const std::int64_t cache_width = backend.cache_columns(layer);
          const DeviceTensor keys(backend, backend.cache_type(), cache_rows, cache_width),
              values(backend, backend.cache_type(), cache_rows, cache_width);
          const KvLayer cache{.keys = keys, .values = values, .page_size = kPage, .ring = ring};
          Results results;
          for (std::size_t i = 0; i < kSteps.size(); ++i) {
            const DeviceBatch step(backend, kSteps[i], kPages);
            const DeviceTensor q(backend, inputs[i][0], q_width), k(backend, inputs[i][1], kv_width),
                v(backend, inputs[i][2], kv_width);
            const DeviceTensor out(backend, DType::f32, step.batch().rows, out_width);
            backend.attention(layer, q, k, v, cache, step.batch(), out);
            append(results, out);
          }
          return results;
        },
        optional);
  }
}

void check_delta_net(Checker& checker, RandomWeights& random) {
  struct Shape {
    int key_heads, value_heads, key_dim, value_dim;
  };
  constexpr std::array kShapes{Shape{2, 4, 128, 128}, Shape{1, 3, 64, 96}, Shape{2, 2, 32, 32}};
  for (const Shape& shape : kShapes) {
    DeltaNet layer{.key_heads = shape.key_heads,
                   .value_heads = shape.value_heads,
                   .key_dim = shape.key_dim,
                   .value_dim = shape.value_dim};
    const std::int64_t channels = layer.channels();
    const std::int64_t width = std::int64_t{shape.value_heads} * shape.value_dim;
    const std::int64_t heads = shape.value_heads;
    const std::vector<float> conv = random.floats(channels * layer.kernel, 0.5f), a_log = random.floats(heads),
                             dt_bias = random.floats(heads), weight = random.floats(shape.value_dim);
    std::vector<std::array<std::vector<float>, 4>> inputs;
    for (const StepShape& step : kSteps) {
      const std::int64_t rows = step.rows[0] + step.rows[1];
      inputs.push_back({random.floats(rows * channels), random.floats(rows * width), random.floats(rows * heads),
                        random.floats(rows * heads)});
    }
    const std::string name =
        fmt::format("{}/{} heads of {} x {}", shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim);
    checker.check("delta_net", name, delta_tolerance(checker.tested()), [&](Backend& backend) {
      const DeviceTensor conv_weight(backend, conv, layer.kernel), a_tensor(backend, a_log, heads),
          bias(backend, dt_bias, heads), norm_weight(backend, weight, shape.value_dim);
      DeltaNet bound = layer;
      bound.conv_weight = conv_weight;
      bound.a_log = a_tensor;
      bound.dt_bias = bias;
      bound.norm = norm_of(norm_weight);
      backend.prepare(bound);
      const DeviceTensor window(backend, DType::f32, 2, (layer.kernel - 1) * channels),
          matrix(backend, DType::f32, 2, heads * shape.key_dim * shape.value_dim);
      backend.fill_zero(window);
      backend.fill_zero(matrix);
      const DeltaNetState state{.window = window, .state = matrix};
      Results results;
      for (std::size_t i = 0; i < kSteps.size(); ++i) {
        const DeviceBatch step(backend, kSteps[i], 1);
        const DeviceTensor qkv(backend, inputs[i][0], channels), z(backend, inputs[i][1], width),
            b(backend, inputs[i][2], heads), a(backend, inputs[i][3], heads),
            out(backend, DType::f32, step.batch().rows, width);
        backend.delta_net(bound, qkv, z, b, a, state, step.batch(), out);
        append(results, out);
      }
      append(results, matrix);
      append(results, window);
      return results;
    });
  }
}

void check_moe(Checker& checker, RandomWeights& random) {
  constexpr std::int64_t kHidden = 256;
  constexpr std::int64_t kWidth = 128;
  const auto expert = [&](int bits, Codebook codebook) {
    return MoeView::Expert{random.trellis_linear(kHidden, kWidth, bits, codebook),
                           random.trellis_linear(kHidden, kWidth, bits + 1, codebook),
                           random.trellis_linear(kWidth, kHidden, bits, codebook)};
  };
  const auto dense_expert = [&] {
    return MoeView::Expert{random.dense_linear(kHidden, kWidth), random.dense_linear(kHidden, kWidth),
                           random.dense_linear(kWidth, kHidden)};
  };
  MoeView trellis{
      .name = "random experts", .hidden = kHidden, .top_k = 3, .router = random.dense_linear(kHidden, 8, DType::f16)};
  for (int e = 0; e < 8; ++e) trellis.experts.push_back(expert(2 + e % 3, e % 2 == 0 ? Codebook::mul1 : Codebook::mcg));
  trellis.shared = expert(5, Codebook::mul1);
  trellis.shared_gate = random.dense_linear(kHidden, 1, DType::f16);
  // One codebook, as quantisers write it: some backends have a faster way for that.
  MoeView uniform = trellis;
  uniform.experts.clear();
  for (int e = 0; e < 8; ++e) uniform.experts.push_back(expert(2 + e % 3, Codebook::mcg));
  uniform.shared = expert(5, Codebook::mcg);
  MoeView dense{
      .name = "random dense experts", .hidden = kHidden, .top_k = 2, .router = random.dense_linear(kHidden, 5)};
  for (int e = 0; e < 5; ++e) dense.experts.push_back(dense_expert());
  MoeView softmax_all = dense, sigmoid = dense;
  softmax_all.score = RouterScore::softmax_all;
  sigmoid.score = RouterScore::sigmoid;
  sigmoid.correction = random.dense(DType::f32, 1, 5);
  sigmoid.routed_scale = 1.7f;
  for (const MoeView* moe : {&trellis, &uniform, &dense, &softmax_all, &sigmoid}) {
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{6}, kCheckRows}) {
      const std::vector<float> x = random.floats(rows * kHidden);
      const std::string shape = fmt::format("{} rows, {} of {} {}experts{}", rows, moe->top_k, moe->experts.size(),
                                            moe->shared ? "" : "dense ", moe->shared ? " + shared" : "") +
                                (moe == &uniform       ? ", one codebook"
                                 : moe == &softmax_all ? ", softmax over all"
                                 : moe == &sigmoid     ? ", sigmoid"
                                                       : "");
      checker.check(
          "moe", shape, moe->shared ? experts_tolerance(checker.tested()) : kDense,
          [&](Backend& backend) {
            const auto bound = backend.bind_moe(*moe);
            const DeviceTensor in(backend, x, kHidden), out(backend, DType::f32, rows, kHidden);
            backend.moe(*bound, in, out);
            return out.floats();
          },
          moe == &softmax_all || moe == &sigmoid);
    }
  }
}

}  // namespace

std::vector<OperationCheck> check_operations(Backend& tested, Backend& reference, bool every_kind) {
  Checker checker(tested, reference);
  RandomWeights random(20);
  check_copies(checker, random);
  check_norms(checker, random);
  check_linears(checker, random);
  if (every_kind) check_kinds(checker, random);
  check_attention(checker, random);
  check_delta_net(checker, random);
  check_moe(checker, random);
  return std::move(checker).take();
}

}  // namespace pergola
