// The text of FloatKernels, included by float_kernels_{portable,avx2,avx512}.cc inside `namespace pergola { namespace
// {`. The includer has defined
//   Vec, kWidth                          a vector of floats and its lanes
//   kTileRows x kTileVectors             accumulators of a matrix tile that fit in registers; kDotRows x kDotColumns
//   those of a tile of dot products kStateVectors                        vectors of state columns that the delta rule
//   keeps in registers v_set, v_zero, v_add, v_sub, v_mul, v_div, v_fma (a * b + c), v_max, v_min, v_round,
//   v_scale_by_power_of_two v_load and v_store for float, HalfBits and BFloatBits, and each of them with a count of
//   lanes (lanes beyond it load as 0 and are not stored) v_sum, v_sum4 (the same order of additions), v_largest v_load4
//   (channels with four taps each, as four vectors), transpose_block (kWidth x kWidth)
// Everything here has internal linkage, so that no other file can be handed a copy with wider instructions.

struct Full {
  template <typename T>
  Vec load(const T* p) const {
    return v_load(p);
  }
  template <typename T>
  void store(T* p, Vec v) const {
    v_store(p, v);
  }
};

struct Part {
  int lanes;

  template <typename T>
  Vec load(const T* p) const {
    return v_load(p, lanes);
  }
  template <typename T>
  void store(T* p, Vec v) const {
    v_store(p, v, lanes);
  }
};

/// Calls body(first index, lanes) over [0, n).
template <typename Body>
void over(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) body(i, Full{});
  if (i < n) body(i, Part{static_cast<int>(n - i)});
}

/// The sum of body(first index, lanes) over [0, n), in four interleaved partial sums. Lanes beyond n must be 0.
template <typename Body>
float sum_over(std::int64_t n, const Body& body) {
  Vec sums[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
  std::int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) {
    for (int part = 0; part < 4; ++part) sums[part] = v_add(sums[part], body(i + part * kWidth, Full{}));
  }
  for (int part = 0; i + kWidth <= n; i += kWidth, ++part) sums[part] = v_add(sums[part], body(i, Full{}));
  if (i < n) sums[3] = v_add(sums[3], body(i, Part{static_cast<int>(n - i)}));
  return v_sum(v_add(v_add(sums[0], sums[1]), v_add(sums[2], sums[3])));
}

/// e^x within 1.5 ulp: x = n ln 2 + r with |r| <= ln 2 / 2, and a polynomial of degree 6 in r whose own error is 3e-9.
/// Overflows to infinity above 88.73, underflows through the subnormals to 0 below -103.98, keeps NaN.
Vec v_exp(Vec x) {
  x = v_max(v_set(-104.0f), v_min(v_set(89.0f), x));
  const Vec n = v_round(v_mul(x, v_set(1.44269504088896f)));
  Vec r = v_fma(n, v_set(-0.693359375f),
                x);  // ln 2 in two parts; the first has 9 significant bits, so that n times it is exact
  r = v_fma(n, v_set(2.12194440e-4f), r);
  Vec p = v_fma(v_set(0.00138145410565f), r, v_set(0.00836874510461f));
  p = v_fma(p, r, v_set(0.0416683907697f));
  p = v_fma(p, r, v_set(0.166665203991f));
  p = v_fma(p, r, v_set(0.499999934322f));
  p = v_fma(v_mul(p, r), r, r);
  return v_scale_by_power_of_two(v_add(p, v_set(1.0f)), n);
}

Vec v_negate(Vec x) {
  return v_sub(v_zero(), x);
}

Vec v_sigmoid(Vec x) {
  return v_div(v_set(1.0f), v_add(v_set(1.0f), v_exp(v_negate(x))));
}

Vec v_silu(Vec x) {
  return v_div(x, v_add(v_set(1.0f), v_exp(v_negate(x))));
}

/// x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), with (1 + tanh(u)) / 2 = sigmoid(2 u).
Vec v_gelu_tanh(Vec x) {
  const Vec cube = v_mul(v_mul(x, x), x);
  const Vec twice_u = v_mul(v_set(1.5957691216057308f), v_fma(v_set(0.044715f), cube, x));
  return v_div(x, v_add(v_set(1.0f), v_exp(v_negate(twice_u))));
}

// --- conversions
// --------------------------------------------------------------------------------------------------------------------------

template <typename T>
void to_float(const void* in, float* out, std::int64_t n) {
  const T* elements = static_cast<const T*>(in);
  over(n, [&](std::int64_t i, auto lanes) { lanes.store(out + i, lanes.load(elements + i)); });
}

void keep_float(const float* in, void* out, std::int64_t n) {
  float* elements = static_cast<float*>(out);
  over(n, [&](std::int64_t i, auto lanes) { lanes.store(elements + i, lanes.load(in + i)); });
}

void to_half(const float* in, void* out, std::int64_t n) {
  HalfBits* bits = static_cast<HalfBits*>(out);
  over(n, [&](std::int64_t i, auto lanes) {
    lanes.store(bits + i, v_max(v_set(-65504.0f), v_min(v_set(65504.0f), lanes.load(in + i))));
  });
}

void to_bfloat(const float* in, void* out, std::int64_t n) {
  BFloatBits* bits = static_cast<BFloatBits*>(out);
  over(n, [&](std::int64_t i, auto lanes) { lanes.store(bits + i, lanes.load(in + i)); });
}

// --- vectors
// ------------------------------------------------------------------------------------------------------------------------------

float sum_squares(const float* x, std::int64_t n) {
  return sum_over(n, [&](std::int64_t i, auto lanes) {
    const Vec value = lanes.load(x + i);
    return v_mul(value, value);
  });
}

float add_sum_squares(float* x, const float* delta, std::int64_t n) {
  return sum_over(n, [&](std::int64_t i, auto lanes) {
    const Vec value = v_add(lanes.load(x + i), lanes.load(delta + i));
    lanes.store(x + i, value);
    return v_mul(value, value);
  });
}

void scale_weighted(const float* x, const float* weight, float factor, float* out, std::int64_t n) {
  const Vec f = v_set(factor);
  over(n, [&](std::int64_t i, auto lanes) {
    lanes.store(out + i, v_mul(v_mul(lanes.load(x + i), f), lanes.load(weight + i)));
  });
}

void scale_weighted_silu(const float* x, const float* weight, float factor, const float* z, float* out,
                         std::int64_t n) {
  const Vec f = v_set(factor);
  over(n, [&](std::int64_t i, auto lanes) {
    const Vec scaled = v_mul(v_mul(lanes.load(x + i), f), lanes.load(weight + i));
    lanes.store(out + i, v_mul(scaled, v_silu(lanes.load(z + i))));
  });
}

void scale(const float* x, float factor, float* out, std::int64_t n) {
  const Vec f = v_set(factor);
  over(n, [&](std::int64_t i, auto lanes) { lanes.store(out + i, v_mul(lanes.load(x + i), f)); });
}

void add_scaled(float* y, const float* x, float factor, std::int64_t n) {
  const Vec f = v_set(factor);
  over(n, [&](std::int64_t i, auto lanes) { lanes.store(y + i, v_fma(lanes.load(x + i), f, lanes.load(y + i))); });
}

void silu_multiply(const float* gate, const float* up, float* out, std::int64_t n) {
  over(n, [&](std::int64_t i, auto lanes) {
    lanes.store(out + i, v_mul(v_silu(lanes.load(gate + i)), lanes.load(up + i)));
  });
}

void gelu_multiply(const float* gate, const float* up, float* out, std::int64_t n) {
  over(n, [&](std::int64_t i, auto lanes) {
    lanes.store(out + i, v_mul(v_gelu_tanh(lanes.load(gate + i)), lanes.load(up + i)));
  });
}

void sigmoid_multiply(float* x, const float* gate, std::int64_t n) {
  over(n, [&](std::int64_t i, auto lanes) {
    lanes.store(x + i, v_mul(lanes.load(x + i), v_sigmoid(lanes.load(gate + i))));
  });
}

float max_value(const float* x, std::int64_t n) {
  Vec largest = v_set(x[0]);
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) largest = v_max(largest, v_load(x + i));
  float result = v_largest(largest);
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

float exp_sum(float* x, float offset, std::int64_t n) {
  const Vec o = v_set(offset);
  Vec sum = v_zero();
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Vec value = v_exp(v_sub(v_load(x + i), o));
    v_store(x + i, value);
    sum = v_add(sum, value);
  }
  float result = v_sum(sum);
  if (i < n) {
    const int lanes = static_cast<int>(n - i);
    v_store(x + i, v_exp(v_sub(v_load(x + i, lanes), o)), lanes);
    for (; i < n; ++i) result += x[i];
  }
  return result;
}

void rotate_halves(float* x, const float* cosine, const float* sine, std::int64_t pairs) {
  over(pairs, [&](std::int64_t i, auto lanes) {
    const Vec first = lanes.load(x + i);
    const Vec second = lanes.load(x + pairs + i);
    const Vec c = lanes.load(cosine + i);
    const Vec s = lanes.load(sine + i);
    lanes.store(x + i, v_sub(v_mul(first, c), v_mul(second, s)));
    lanes.store(x + pairs + i, v_fma(second, c, v_mul(first, s)));
  });
}

// --- small matrices
// -----------------------------------------------------------------------------------------------------------------------

/// One tile of c: kRows x kVectors vectors, of which the last one has `last` lanes. Every element is one chain of fused
/// multiply-adds over k, whatever tile it falls in.
template <int kRows, int kVectors, typename Last, typename T>
void multiply_tile(float* c, std::int64_t ldc, const float* a, std::int64_t a_row, std::int64_t a_column, const T* b,
                   std::int64_t ldb, std::int64_t k, bool accumulate, Last last) {
  Vec sums[kRows][kVectors];
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v + 1 < kVectors; ++v) sums[row][v] = accumulate ? v_load(c + row * ldc + v * kWidth) : v_zero();
    sums[row][kVectors - 1] = accumulate ? last.load(c + row * ldc + (kVectors - 1) * kWidth) : v_zero();
  }
  for (std::int64_t step = 0; step < k; ++step) {
    Vec right[kVectors];
    for (int v = 0; v + 1 < kVectors; ++v) right[v] = v_load(b + v * kWidth);
    right[kVectors - 1] = last.load(b + (kVectors - 1) * kWidth);
    for (int row = 0; row < kRows; ++row) {
      const Vec left = v_set(a[row * a_row]);
      for (int v = 0; v < kVectors; ++v) sums[row][v] = v_fma(left, right[v], sums[row][v]);
    }
    a += a_column;
    b += ldb;
  }
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v + 1 < kVectors; ++v) v_store(c + row * ldc + v * kWidth, sums[row][v]);
    last.store(c + row * ldc + (kVectors - 1) * kWidth, sums[row][kVectors - 1]);
  }
}

template <int kRows, int kVectors, typename Last, typename T>
void multiply_rows(float* c, std::int64_t ldc, const float* a, std::int64_t a_row, std::int64_t a_column, const T* b,
                   std::int64_t ldb, std::int64_t m, std::int64_t k, bool accumulate, Last last) {
  while (m >= kRows) {
    multiply_tile<kRows, kVectors>(c, ldc, a, a_row, a_column, b, ldb, k, accumulate, last);
    c += kRows * ldc;
    a += kRows * a_row;
    m -= kRows;
  }
  if constexpr (kRows > 1) {
    if (m > 0) multiply_rows<kRows - 1, kVectors>(c, ldc, a, a_row, a_column, b, ldb, m, k, accumulate, last);
  }
}

template <int kVectors, typename T>
void multiply_columns(float* c, std::int64_t ldc, const float* a, std::int64_t a_row, std::int64_t a_column, const T* b,
                      std::int64_t ldb, std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate) {
  while (n >= kVectors * kWidth) {
    multiply_rows<kTileRows, kVectors>(c, ldc, a, a_row, a_column, b, ldb, m, k, accumulate, Full{});
    c += kVectors * kWidth;
    b += kVectors * kWidth;
    n -= kVectors * kWidth;
  }
  if constexpr (kVectors > 1) {
    if (n > 0) multiply_columns<kVectors - 1>(c, ldc, a, a_row, a_column, b, ldb, m, n, k, accumulate);
  } else {
    if (n > 0)
      multiply_rows<kTileRows, 1>(c, ldc, a, a_row, a_column, b, ldb, m, k, accumulate, Part{static_cast<int>(n)});
  }
}

template <typename T>
void multiply(float* c, std::int64_t ldc, const float* a, std::int64_t a_row, std::int64_t a_column, const void* b,
              std::int64_t ldb, std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate) {
  multiply_columns<kTileVectors>(c, ldc, a, a_row, a_column, static_cast<const T*>(b), ldb, m, n, k, accumulate);
}

/// kRows x kColumns dot products: one vector of partial sums each, whatever tile an element falls in.
template <int kRows, int kColumns, typename T>
void dot_tile(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const T* b, std::int64_t ldb,
              std::int64_t k) {
  Vec sums[kRows][kColumns];
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) sums[row][column] = v_zero();
  }
  over(k, [&](std::int64_t i, auto lanes) {
    Vec right[kColumns];
    for (int column = 0; column < kColumns; ++column) right[column] = lanes.load(b + column * ldb + i);
    for (int row = 0; row < kRows; ++row) {
      const Vec left = lanes.load(a + row * lda + i);
      for (int column = 0; column < kColumns; ++column)
        sums[row][column] = v_fma(left, right[column], sums[row][column]);
    }
  });
  for (int row = 0; row < kRows; ++row) {
    if constexpr (kColumns % 4 == 0) {
      for (int column = 0; column < kColumns; column += 4) v_sum4(c + row * ldc + column, sums[row] + column);
    } else {
      for (int column = 0; column < kColumns; ++column) c[row * ldc + column] = v_sum(sums[row][column]);
    }
  }
}

template <int kRows, typename T>
void dot_rows(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const T* b, std::int64_t ldb,
              std::int64_t m, std::int64_t n, std::int64_t k) {
  while (m >= kRows) {
    std::int64_t j = 0;
    for (; j + kDotColumns <= n; j += kDotColumns)
      dot_tile<kRows, kDotColumns>(c + j, ldc, a, lda, b + j * ldb, ldb, k);
    for (; j < n; ++j) dot_tile<kRows, 1>(c + j, ldc, a, lda, b + j * ldb, ldb, k);
    c += kRows * ldc;
    a += kRows * lda;
    m -= kRows;
  }
  if constexpr (kRows > 1) {
    if (m > 0) dot_rows<kRows - 1>(c, ldc, a, lda, b, ldb, m, n, k);
  }
}

/// Blocks of b small enough for the second-level cache, so that all rows of a find them there.
constexpr std::int64_t kDotBlockElements = 64 * 1024;

template <typename T>
void dot(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const void* b, std::int64_t ldb, std::int64_t m,
         std::int64_t n, std::int64_t k) {
  const T* right = static_cast<const T*>(b);
  std::int64_t block = kDotBlockElements / (k > 0 ? k : 1) / kDotColumns * kDotColumns;
  if (block < kDotColumns) block = kDotColumns;
  for (std::int64_t j = 0; j < n; j += block) {
    dot_rows<kDotRows>(c + j, ldc, a, lda, right + j * ldb, ldb, m, n - j < block ? n - j : block, k);
  }
}

void transpose(const float* in, std::int64_t ld_in, float* out, std::int64_t ld_out, std::int64_t rows,
               std::int64_t columns) {
  std::int64_t row = 0;
  for (; row + kWidth <= rows; row += kWidth) {
    std::int64_t column = 0;
    for (; column + kWidth <= columns; column += kWidth)
      transpose_block(in + row * ld_in + column, ld_in, out + column * ld_out + row, ld_out);
    for (; column < columns; ++column) {
      for (int i = 0; i < kWidth; ++i) out[column * ld_out + row + i] = in[(row + i) * ld_in + column];
    }
  }
  for (; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) out[column * ld_out + row] = in[row * ld_in + column];
  }
}

// --- gated delta net
// ----------------------------------------------------------------------------------------------------------------------

float silu_of(float x) {
  float lanes[kWidth];
  v_store(lanes, v_silu(v_set(x)));
  return lanes[0];
}

void convolve_silu(const float* const* inputs, const float* taps, std::int64_t kernel, float* out,
                   std::int64_t channels) {
  std::int64_t c = 0;
  if (kernel == 4) {
    for (; c + kWidth <= channels; c += kWidth) {
      Vec tap[4];
      v_load4(taps + c * 4, tap);
      Vec sum = v_mul(tap[0], v_load(inputs[0] + c));
      for (int j = 1; j < 4; ++j) sum = v_fma(tap[j], v_load(inputs[j] + c), sum);
      v_store(out + c, v_silu(sum));
    }
  }
  for (; c < channels; ++c) {
    float sum = taps[c * kernel] * inputs[0][c];
    for (std::int64_t j = 1; j < kernel; ++j) sum += taps[c * kernel + j] * inputs[j][c];
    out[c] = silu_of(sum);
  }
}

struct DeltaRows {
  std::int64_t rows;
  const float* k;
  std::int64_t ldk;
  const float* q;
  std::int64_t ldq;
  const float* v;
  std::int64_t ldv;
  const float* alpha;
  const float* beta;
  const float* k_dot_q;
  float* out;
  std::int64_t ldo;
};

/// The rule for kVectors vectors of value columns that start at `column`; the last vector has `last` lanes. Each row's
/// update and the next row's read share one pass over the columns, which stay in the first-level cache.
template <int kVectors, typename Last>
void delta_columns(float* s, std::int64_t key_dim, std::int64_t value_dim, std::int64_t column, const DeltaRows& x,
                   Last last) {
  Vec read_k[kVectors];  // s^T k and s^T q of the row that comes next
  Vec read_q[kVectors];
  for (int v = 0; v < kVectors; ++v) read_k[v] = read_q[v] = v_zero();
  const auto load = [&](const float* p, int v) {
    return v + 1 < kVectors ? v_load(p + v * kWidth) : last.load(p + v * kWidth);
  };
  const auto store = [&](float* p, int v, Vec value) {
    if (v + 1 < kVectors) {
      v_store(p + v * kWidth, value);
    } else {
      last.store(p + v * kWidth, value);
    }
  };

  float* const first = s + column;
  for (std::int64_t i = 0; i < key_dim; ++i) {
    const float* row = first + i * value_dim;
    // The first block of columns fetches whole rows of the state ahead; the other blocks then find them in the cache.
    if (column == 0) v_prefetch(row + kStatePrefetchRows * value_dim, value_dim);
    const Vec k = v_set(x.k[i]);
    const Vec q = v_set(x.q[i]);
    for (int v = 0; v < kVectors; ++v) {
      const Vec state = load(row, v);
      read_k[v] = v_fma(state, k, read_k[v]);
      read_q[v] = v_fma(state, q, read_q[v]);
    }
  }
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const Vec alpha = v_set(x.alpha[t]);
    const Vec beta = v_set(x.beta[t]);
    const Vec k_dot_q = v_set(x.k_dot_q[t]);
    Vec delta[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      delta[v] = v_mul(beta, v_sub(load(x.v + t * x.ldv + column, v), v_mul(alpha, read_k[v])));
      store(x.out + t * x.ldo + column, v, v_fma(alpha, read_q[v], v_mul(k_dot_q, delta[v])));
    }
    const float* key = x.k + t * x.ldk;
    if (t + 1 == x.rows) {
      for (std::int64_t i = 0; i < key_dim; ++i) {
        float* row = first + i * value_dim;
        const Vec k = v_set(key[i]);
        for (int v = 0; v < kVectors; ++v) store(row, v, v_fma(k, delta[v], v_mul(alpha, load(row, v))));
      }
      return;
    }
    const float* next_key = key + x.ldk;
    const float* next_query = x.q + (t + 1) * x.ldq;
    for (int v = 0; v < kVectors; ++v) read_k[v] = read_q[v] = v_zero();
    for (std::int64_t i = 0; i < key_dim; ++i) {
      float* row = first + i * value_dim;
      const Vec k = v_set(key[i]);
      const Vec k_next = v_set(next_key[i]);
      const Vec q_next = v_set(next_query[i]);
      for (int v = 0; v < kVectors; ++v) {
        const Vec state = v_fma(k, delta[v], v_mul(alpha, load(row, v)));
        store(row, v, state);
        read_k[v] = v_fma(state, k_next, read_k[v]);
        read_q[v] = v_fma(state, q_next, read_q[v]);
      }
    }
  }
}

/// From this many rows on, and up to this many keys, the columns are copied into one run of memory first: where they
/// lie, rows a power of two apart share too few sets of the first-level cache, and every row misses it.
constexpr std::int64_t kPackedRows = 4;
constexpr std::int64_t kPackedKeys = 256;

template <int kVectors>
void delta_packed_columns(float* s, std::int64_t key_dim, std::int64_t value_dim, std::int64_t column,
                          const DeltaRows& x) {
  constexpr std::int64_t kColumns = kVectors * kWidth;
  alignas(64) float packed[kPackedKeys * kColumns];
  for (std::int64_t i = 0; i < key_dim; ++i) {
    for (int v = 0; v < kVectors; ++v)
      v_store(packed + i * kColumns + v * kWidth, v_load(s + i * value_dim + column + v * kWidth));
  }
  DeltaRows part = x;
  part.v += column;
  part.out += column;
  delta_columns<kVectors>(packed, key_dim, kColumns, 0, part, Full{});
  for (std::int64_t i = 0; i < key_dim; ++i) {
    for (int v = 0; v < kVectors; ++v)
      v_store(s + i * value_dim + column + v * kWidth, v_load(packed + i * kColumns + v * kWidth));
  }
}

template <int kVectors>
void delta_blocks(float* s, std::int64_t key_dim, std::int64_t value_dim, std::int64_t column, const DeltaRows& x) {
  while (value_dim - column >= kVectors * kWidth) {
    if (x.rows >= kPackedRows && key_dim <= kPackedKeys) {
      delta_packed_columns<kVectors>(s, key_dim, value_dim, column, x);
    } else {
      delta_columns<kVectors>(s, key_dim, value_dim, column, x, Full{});
    }
    column += kVectors * kWidth;
  }
  if constexpr (kVectors > 1) {
    if (column < value_dim) delta_blocks<kVectors - 1>(s, key_dim, value_dim, column, x);
  } else {
    if (column < value_dim)
      delta_columns<1>(s, key_dim, value_dim, column, x, Part{static_cast<int>(value_dim - column)});
  }
}

void delta_rule(float* s, std::int64_t key_dim, std::int64_t value_dim, std::int64_t rows, const float* k,
                std::int64_t ldk, const float* q, std::int64_t ldq, const float* v, std::int64_t ldv,
                const float* alpha, const float* beta, const float* k_dot_q, float* out, std::int64_t ldo) {
  if (rows < 1) return;
  delta_blocks<kStateVectors>(s, key_dim, value_dim, 0,
                              DeltaRows{rows, k, ldk, q, ldq, v, ldv, alpha, beta, k_dot_q, out, ldo});
}

constexpr FloatKernels make_table(const char* name) {
  FloatKernels table{};
  table.name = name;
  table.f32 = {to_float<float>, keep_float, multiply<float>, dot<float>};
  table.f16 = {to_float<HalfBits>, to_half, multiply<HalfBits>, dot<HalfBits>};
  table.bf16 = {to_float<BFloatBits>, to_bfloat, multiply<BFloatBits>, dot<BFloatBits>};
  table.sum_squares = sum_squares;
  table.add_sum_squares = add_sum_squares;
  table.scale_weighted = scale_weighted;
  table.scale_weighted_silu = scale_weighted_silu;
  table.scale = scale;
  table.add_scaled = add_scaled;
  table.silu_multiply = silu_multiply;
  table.gelu_multiply = gelu_multiply;
  table.sigmoid_multiply = sigmoid_multiply;
  table.max_value = max_value;
  table.exp_sum = exp_sum;
  table.rotate_halves = rotate_halves;
  table.transpose = transpose;
  table.convolve_silu = convolve_silu;
  table.delta_rule = delta_rule;
  return table;
}
