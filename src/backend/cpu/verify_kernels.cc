#include "backend/cpu/verify_kernels.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>

#include "backend/cpu/packed_linear.h"
#include "backend/cpu/work_space.h"
#include "trellis/decode.h"
#include "trellis/tile.h"

namespace pergola {
namespace {

struct Shape {
  std::int64_t stored_in;
  std::int64_t stored_out;
  std::int64_t in;
  std::int64_t out;
  bool timed;
};

// The smallest trellis; three chunks, with padding on both sides; one large enough to time.
constexpr Shape kTrellisShapes[] = {
    {128, 128, 128, 128, false}, {384, 256, 300, 200, false}, {1024, 512, 1024, 512, true}};
constexpr Shape kDenseShapes[] = {{7, 5, 7, 5, false}, {1027, 261, 1027, 261, true}};

/// Both sides of every regime's limits, and counts that are no multiple of any group of rows.
constexpr std::int64_t kRowCounts[] = {1, 2, 3, 4, 7, 8, 11, 16, 17, 23, 24, 32, 33, 48};
constexpr std::int64_t kMostRows = 48;

constexpr double kDenseTolerance = 2e-6;

std::string_view precision_name(Precision precision) {
  switch (precision) {
    case Precision::standard:
      return "standard";
    case Precision::exact:
      return "exact";
    case Precision::int8:
      return "int8";
  }
  return "";
}

/// Weights, inputs and right outputs of one linear.
struct Sample {
  Shape shape;
  std::vector<std::byte> weights;
  std::vector<Half> suh;
  std::vector<Half> svh;
  LinearView view;
  std::vector<float> x;        ///< [kMostRows, in]
  std::vector<double> wanted;  ///< [kMostRows, out]

  explicit Sample(const Shape& which) : shape(which) {}
  Sample(const Sample&) = delete;  // the view points into this object
  Sample& operator=(const Sample&) = delete;
};

std::vector<Half> random_scales(std::int64_t count, float size, std::mt19937& generator) {
  std::uniform_real_distribution<float> magnitude(0.5f * size, 1.5f * size);
  std::vector<Half> scales(static_cast<std::size_t>(count));
  for (Half& scale : scales) scale = to_half((generator() & 1u ? 1.0f : -1.0f) * magnitude(generator));
  return scales;
}

void finish_sample(Sample& sample, std::mt19937& generator) {
  std::normal_distribution<float> normal;
  sample.view.name = "check";
  sample.view.in_features = sample.shape.in;
  sample.view.out_features = sample.shape.out;
  sample.x.resize(static_cast<std::size_t>(kMostRows * sample.shape.in));
  for (float& value : sample.x) value = normal(generator);
  sample.wanted.resize(static_cast<std::size_t>(kMostRows * sample.shape.out));
  linear_product(sample.view, kMostRows, std::vector<double>(sample.x.begin(), sample.x.end()), sample.wanted);
}

void fill_trellis(Sample& sample, Codebook codebook, int bits) {
  std::mt19937 generator(static_cast<std::uint32_t>(bits));
  const Shape& shape = sample.shape;
  sample.weights.resize(static_cast<std::size_t>(shape.stored_in * shape.stored_out * bits / 8));
  for (std::byte& byte : sample.weights) byte = static_cast<std::byte>(generator());
  sample.suh = random_scales(shape.stored_in, 1.0f / 64, generator);
  sample.svh = random_scales(shape.stored_out, 1.0f, generator);
  sample.view.weight = TrellisView{shape.stored_in,
                                   shape.stored_out,
                                   bits,
                                   codebook,
                                   sample.weights,
                                   std::as_bytes(std::span(sample.suh)),
                                   std::as_bytes(std::span(sample.svh))};
  finish_sample(sample, generator);
}

void fill_dense(Sample& sample, DType type) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  const std::size_t element = size_of(type);
  sample.weights.resize(static_cast<std::size_t>(sample.shape.in * sample.shape.out) * element);
  for (std::size_t at = 0; at < sample.weights.size(); at += element) {
    const float value = normal(generator);
    const std::uint16_t half = type == DType::f16 ? to_half(value).bits : to_bfloat16(value).bits;
    std::memcpy(sample.weights.data() + at, type == DType::f32 ? static_cast<const void*>(&value) : &half, element);
  }
  sample.view.weight = DenseView{type, sample.shape.out, sample.shape.in, sample.weights};
  finish_sample(sample, generator);
}

/// A sample bound for one table, with room for a product.
class BoundSample {
 public:
  BoundSample(const Sample& sample, const KernelTable& table) : sample_(sample), table_(table), pool_(1), work_(1) {
    linear_ = pack_linear(sample.view, arena_, pool_);
    work_.reserve({std::max<std::int64_t>(64, max_form_bytes(table, linear_, kMostRows)),
                   std::max<std::int64_t>(64, block_scratch_bytes(table, linear_, kMostRows))});
    out_.resize(static_cast<std::size_t>(kMostRows * sample.shape.out));
  }

  void prepare(std::int64_t rows) {
    for (std::int64_t r = 0; r < rows; ++r) {
      prepare_row(table_, linear_, sample_.x.data() + r * sample_.shape.in, r, rows, work_.shared());
    }
  }

  void multiply(std::int64_t rows) {
    const LinearInput input{sample_.x.data(), sample_.shape.in, work_.shared(), rows};
    for (std::int64_t block = 0; block < linear_.blocks(); ++block) {
      multiply_block(table_, linear_, block, input, out_.data() + block * linear_.block_columns(), sample_.shape.out,
                     work_.of_thread(0));
    }
  }

  /// Relative RMS error of the first rows; infinite if a value is not finite.
  double error(std::int64_t rows) const {
    double difference = 0;
    double size = 0;
    for (std::int64_t i = 0; i < rows * sample_.shape.out; ++i) {
      const double wanted = sample_.wanted[static_cast<std::size_t>(i)];
      const double d = out_[static_cast<std::size_t>(i)] - wanted;
      difference += d * d;
      size += wanted * wanted;
    }
    const double relative = std::sqrt(difference / size);
    return std::isfinite(relative) ? relative : HUGE_VAL;
  }

  /// Weights a second, the best of a few passes.
  double speed(std::int64_t rows) {
    double best = HUGE_VAL;
    for (int pass = 0; pass < 3; ++pass) {
      const auto start = std::chrono::steady_clock::now();
      multiply(rows);
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return static_cast<double>(sample_.shape.in * sample_.shape.out) / best;
  }

  void clear() { std::fill(out_.begin(), out_.end(), NAN); }

 private:
  const Sample& sample_;
  const KernelTable& table_;
  ThreadPool pool_;
  WeightArena arena_;
  WorkSpace work_;
  PackedLinear linear_;
  std::vector<float> out_;
};

/// One table of kernels and what to call it.
struct Candidate {
  KernelTable table;
  Precision precision;
  const KernelTable* standard;  ///< the table without the option; entries equal to its are not run again
};

std::vector<Candidate> make_candidates(const KernelCheckOptions& options) {
  std::vector<Candidate> candidates;
  candidates.reserve(12);  // pointers into it stay valid
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (isa > std::min(cpu_features().best, options.cap)) break;
    const KernelTable* standard = nullptr;
    for (const Precision precision : {Precision::standard, Precision::exact, Precision::int8}) {
      candidates.push_back({make_kernel_table(cpu_features(), isa, precision), precision, standard});
      if (options.alter) options.alter(candidates.back().table);
      if (standard == nullptr) standard = &candidates.back().table;
    }
  }
  return candidates;
}

class Verifier {
 public:
  Verifier(const KernelCheckOptions& options, const Progress& progress)
      : options_(options), progress_(progress), candidates_(make_candidates(options)) {}

  std::vector<KernelCheck> run() {
    for (const Codebook codebook : {Codebook::mul1, Codebook::mcg, Codebook::three_inst}) {
      for (int bits = kMinBits; bits <= kMaxBits; ++bits) check_trellis(codebook, bits);
    }
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) check_dense(type);
    return std::move(checks_);
  }

 private:
  static constexpr std::uint64_t kStages = kCodebooks * kBitWidths + 3;

  void advance() {
    if (progress_) progress_("kernels", ++done_, kStages);
  }

  bool wanted(const std::string& weight, int bits) const {
    return (options_.weight.empty() || options_.weight == weight) && (options_.bits == 0 || options_.bits == bits);
  }

  void check_trellis(Codebook codebook, int bits) {
    const std::string weight(name_of(codebook));
    if (!wanted(weight, bits)) return advance();
    for (const Shape& shape : kTrellisShapes) {
      Sample sample(shape);
      fill_trellis(sample, codebook, bits);
      for (const Candidate& candidate : candidates_) {
        BoundSample bound(sample, candidate.table);
        for (const std::int64_t rows : kRowCounts) {
          const TrellisKernel& kernel = candidate.table.kernel_for_rows(codebook, bits, rows);
          if (candidate.standard != nullptr) {
            const TrellisKernel& usual = candidate.standard->kernel_for_rows(codebook, bits, rows);
            if (kernel.multiply == usual.multiply && kernel.form == usual.form) continue;
          }
          KernelCheck check = describe(candidate, weight, bits, shape, rows);
          check.path = kernel.path;
          check.tolerance = kernel.tolerance;
          measure(bound, shape, check);
        }
      }
    }
    advance();
  }

  void check_dense(DType type) {
    std::string weight(name_of(type));
    std::transform(weight.begin(), weight.end(), weight.begin(), [](unsigned char c) { return std::tolower(c); });
    if (!wanted(weight, 0)) return advance();
    for (const Shape& shape : kDenseShapes) {
      Sample sample(shape);
      fill_dense(sample, type);
      for (const Candidate& candidate : candidates_) {
        if (candidate.standard != nullptr && candidate.table.dense(type) == candidate.standard->dense(type)) continue;
        BoundSample bound(sample, candidate.table);
        for (const std::int64_t rows : kRowCounts) {
          KernelCheck check = describe(candidate, weight, 0, shape, rows);
          check.path = check.isa + " dense";
          check.tolerance = kDenseTolerance;
          measure(bound, shape, check);
        }
      }
    }
    advance();
  }

  static KernelCheck describe(const Candidate& candidate, const std::string& weight, int bits, const Shape& shape,
                              std::int64_t rows) {
    KernelCheck check;
    check.isa = name_of(candidate.table.isa);
    check.precision = precision_name(candidate.precision);
    check.weight = weight;
    check.bits = bits;
    check.rows = rows;
    check.in_features = shape.in;
    check.out_features = shape.out;
    return check;
  }

  void measure(BoundSample& bound, const Shape& shape, KernelCheck& check) {
    bound.clear();
    bound.prepare(check.rows);
    bound.multiply(check.rows);
    check.error = bound.error(check.rows);
    check.passed = check.error <= check.tolerance;
    if (shape.timed && options_.timed) check.weights_per_second = bound.speed(check.rows);
    checks_.push_back(check);
  }

  const KernelCheckOptions& options_;
  const Progress& progress_;
  std::vector<Candidate> candidates_;
  std::vector<KernelCheck> checks_;
  std::uint64_t done_ = 0;
};

}  // namespace

std::vector<KernelCheck> verify_linear_kernels(const KernelCheckOptions& options, const Progress& progress) {
  return Verifier(options, progress).run();
}

}  // namespace pergola
