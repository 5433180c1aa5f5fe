// AMX tiles for two and more rows.

#include "backend/cpu/few_rows_amx.h"
#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/many_rows_amx.h"

namespace pergola {
namespace {

std::int64_t no_scratch(std::int64_t, std::int64_t) {
  return 0;
}

constexpr double kExactTolerance = 5e-4;
constexpr double kBf16Tolerance = 3e-3;
constexpr double kInt8Tolerance = 1.0e-2;
constexpr double kShortInt8Tolerance = 1.6e-2;  // int8 weights too

template <typename Lines, int K>
void fill_few(KernelTable& table, const char* path, const ActivationForm* form, double tolerance) {
  table.entry(Lines::kCodebook, K, Regime::few) = {path, form, tolerance, no_scratch, multiply_few_rows_amx<Lines, K>};
}

template <typename Tiles, int K>
void fill_many(KernelTable& table, const char* path, const ActivationForm* form, double tolerance) {
  table.entry(Tiles::kCodebook, K, Regime::many) = {path, form, tolerance, many_rows_scratch<Tiles>,
                                                    multiply_many_rows<Tiles, K>};
}

template <Codebook codebook, int K>
void fill_halves(KernelTable& table, Precision precision) {
  fill_few<SplitLines<codebook>, K>(table, "amx int16, split weights", &kSplit16Form, kExactTolerance);
  if (precision == Precision::standard) {
    fill_many<FloatTiles<codebook>, K>(table, "amx bf16, decoded", &kBf16Form, kBf16Tolerance);
  } else if (precision == Precision::int8) {
    fill_many<ByteTiles<codebook>, K>(table, "amx int8, decoded", &kInt8TileForm, kShortInt8Tolerance);
  }  // exact: decoded int16 with vectors is the fastest
}

template <int K>
void fill_mul1(KernelTable& table, Precision precision) {
  if (precision == Precision::int8) {
    fill_few<ByteLines<false>, K>(table, "amx int8, product bytes", &kBytes8Form, kInt8Tolerance);
    fill_many<ByteTiles<Codebook::mul1>, K>(table, "amx int8, decoded", &kInt8TileForm, kShortInt8Tolerance);
    return;
  }
  fill_few<ByteLines<true>, K>(table, "amx int16, product bytes", &kBytes16Form, kExactTolerance);
  if (precision == Precision::standard) {
    fill_many<FloatTiles<Codebook::mul1>, K>(table, "amx bf16, decoded", &kBf16Form, kBf16Tolerance);
  } else {
    table.entry(Codebook::mul1, K, Regime::many) = table.kernel(Codebook::mul1, K, Regime::few);
  }
}

template <int... K>
void fill(KernelTable& table, Precision precision, std::integer_sequence<int, K...>) {
  (fill_mul1<K + 1>(table, precision), ...);
  (fill_halves<Codebook::mcg, K + 1>(table, precision), ...);
  (fill_halves<Codebook::three_inst, K + 1>(table, precision), ...);
}

}  // namespace

void add_amx_kernels(KernelTable& table, Precision precision) {
  table.isa = Isa::amx;
  fill(table, precision, std::make_integer_sequence<int, kBitWidths>{});
  for (RowLimits& limits : table.limits) limits = {2, 17};
}

}  // namespace pergola
