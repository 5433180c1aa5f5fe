// AVX-512 with VNNI, VBMI2 and GFNI: exact weights as int16 times int16 activations, or the bytes of MUL1 products
// times int8 activations.

#include "backend/cpu/blocks_avx512.h"
#include "backend/cpu/float_kernels.h"
#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/rows_avx512.h"

namespace pergola {
namespace {

std::int64_t no_scratch(std::int64_t, std::int64_t) {
  return 0;
}

constexpr double kExactTolerance = 5e-4;
constexpr double kTableTolerance = 8e-4;  // 13-bit activations: weights in units of 2^-13 leave no more
constexpr double kInt8Tolerance = 1.0e-2;
constexpr double kShortInt8Tolerance = 1.6e-2;  // int8 weights too

template <typename Weights, int K>
void fill_entry(KernelTable& table, Precision precision, const ActivationForm* form, double tolerance) {
  using Products = PairProducts<Weights>;
  constexpr Codebook codebook = Weights::kCodebook;
  table.entry(codebook, K, Regime::one) = {"avx512 int16", form, tolerance, no_scratch, multiply_one_row<Products, K>};
  table.entry(codebook, K, Regime::few) = {"avx512 int16, rows", form, tolerance, no_scratch,
                                           multiply_few_rows<Products, K>};
  if (precision == Precision::int8) {
    table.entry(codebook, K, Regime::many) = {"avx512 int8, decoded", &kInt8QuadForm, kShortInt8Tolerance,
                                              block_scratch, multiply_block_rows<ByteBlocks<Weights>, K>};
  } else {
    table.entry(codebook, K, Regime::many) = {"avx512 int16, decoded", form, tolerance, block_scratch,
                                              multiply_block_rows<WordBlocks<Weights>, K>};
  }
}

template <int K>
void fill_bits(KernelTable& table, Precision precision) {
  fill_entry<ByteSumWeights, K>(table, precision, &kInt16Form, kExactTolerance);
  fill_entry<TableWeights<Codebook::mcg>, K>(table, precision, &kInt16Halves13Form, kTableTolerance);
  fill_entry<TableWeights<Codebook::three_inst>, K>(table, precision, &kInt16Halves13Form, kTableTolerance);
  if (precision == Precision::int8) {
    table.entry(Codebook::mul1, K, Regime::one) = {"avx512 int8", &kInt8PairForm, kInt8Tolerance, no_scratch,
                                                   multiply_one_row<ByteProducts, K>};
  }
}

template <DType type>
void multiply_dense(const std::byte* w, std::int64_t in_features, std::int64_t columns, const float* x,
                    std::int64_t x_stride, std::int64_t rows, float* out, std::int64_t out_stride) {
  avx512_float_kernels().of(type).dot(out, out_stride, x, x_stride, w, in_features, rows, columns, in_features);
}

template <int... K>
void fill(KernelTable& table, Precision precision, std::integer_sequence<int, K...>) {
  (fill_bits<K + 1>(table, precision), ...);
}

}  // namespace

void add_avx512_kernels(KernelTable& table, Precision precision) {
  table.isa = Isa::avx512;
  fill(table, precision, std::make_integer_sequence<int, kBitWidths>{});
  for (RowLimits& limits : table.limits) limits = {2, 13};
  table.finish = finish_block_avx512;
  table.dense_f32 = multiply_dense<DType::f32>;
  table.dense_f16 = multiply_dense<DType::f16>;
  table.dense_bf16 = multiply_dense<DType::bf16>;
}

}  // namespace pergola
