// The portable core of every kernel: OpenCL C 1.2, no sub-groups, no fp16 arithmetic. What a device offers beyond it
// comes in through HAVE_* options, each with a plain twin here.
//
// Half values live in memory as ushort. Kernel arguments name a buffer and an offset in elements, because tensors share
// buffers.

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("unroll")

// Sub-groups of 16 where the device lets kernels ask for them; nothing depends on their size.
#ifdef cl_intel_required_subgroup_size
#define SUB_GROUP __attribute__((intel_reqd_sub_group_size(16)))
#else
#define SUB_GROUP
#endif

// A value that is the same in every work-item of a sub-group, for compilers that cannot see it: addresses made of it
// need one load for all. Sub-groups are runs of 16 of the 64 work-items along x, so anything made of y qualifies.
#ifdef HAVE_SUBGROUPS
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#define UNIFORM(value) sub_group_broadcast(value, 0u)
#else
#define UNIFORM(value) (value)
#endif

// vload_half and vstore_half are core OpenCL C on every device.
ALWAYS_INLINE float load_half(__global const ushort* halves, ulong index) {
  return vload_half(index, (__global const half*)halves);
}

ALWAYS_INLINE void store_half(float value, __global ushort* halves, ulong index) {
  vstore_half_rte(value, index, (__global half*)halves);
}

// The value of a half, and the half next to a value, as bits.
ALWAYS_INLINE float half_value(uint bits) {
  const ushort own = (ushort)bits;
  return vload_half(0, (const half*)&own);
}

ALWAYS_INLINE ushort half_bits(float value) {
  ushort bits;
  vstore_half_rte(value, 0, (half*)&bits);
  return bits;
}

// A float rounded to the 11 significant bits of binary16, to nearest even; exact for results that are zero or normal
// there, which all codebook values are.
ALWAYS_INLINE float round_to_half(float value) {
  const uint bits = as_uint(value);
  return as_float((bits + 0xFFFu + ((bits >> 13) & 1u)) & 0xFFFFE000u);
}

// acc + the sum over the four bytes of x (u8) times those of y (u8, or i8 in dot_signed), and the plain twins.
ALWAYS_INLINE uint dot_bytes_plain(uint x, uint y, uint acc) {
  return acc + (x & 0xFFu) * (y & 0xFFu) + (x >> 8 & 0xFFu) * (y >> 8 & 0xFFu) + (x >> 16 & 0xFFu) * (y >> 16 & 0xFFu) +
         (x >> 24) * (y >> 24);
}
ALWAYS_INLINE int dot_signed_plain(uint x, uint y, int acc) {
  return acc + (int)(x & 0xFFu) * (char)y + (int)(x >> 8 & 0xFFu) * (char)(y >> 8) +
         (int)(x >> 16 & 0xFFu) * (char)(y >> 16) + (int)(x >> 24) * (char)(y >> 24);
}
#if defined(HAVE_DOT)
#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable
ALWAYS_INLINE uint dot_bytes(uint x, uint y, uint acc) {
  return dot_acc_sat_4x8packed_uu_uint(x, y, acc);
}
ALWAYS_INLINE int dot_signed(uint x, uint y, int acc) {
  return dot_acc_sat_4x8packed_us_int(x, y, acc);
}
#elif defined(HAVE_PTX)
ALWAYS_INLINE uint dot_bytes(uint x, uint y, uint acc) {
  uint sum;
  __asm__("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(y), "r"(acc));
  return sum;
}
ALWAYS_INLINE int dot_signed(uint x, uint y, int acc) {
  int sum;
  __asm__("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(y), "r"(acc));
  return sum;
}
#else
#define dot_bytes dot_bytes_plain
#define dot_signed dot_signed_plain
#endif

// The sum of the four bytes of x as a float f, up to one factor and offset for all: sum = BYTE_SCALE * f - BYTE_OFFSET.
// With a dot instruction the number is put together in the bits of a float: 32768 + 255 / 256 * sum.
#if defined(HAVE_DOT) || defined(HAVE_PTX)
#define BYTE_SCALE (256.0f / 255.0f)
#define BYTE_OFFSET (32768.0f * 256.0f / 255.0f)
ALWAYS_INLINE float byte_sum(uint x) {
  return as_float(dot_bytes(x, 0xFFFFFFFFu, 0x47000000u));
}
#else
#define BYTE_SCALE 1.0f
#define BYTE_OFFSET 0.0f
ALWAYS_INLINE float byte_sum(uint x) {
  const uint pairs = (x & 0x00FF00FFu) + ((x >> 8) & 0x00FF00FFu);
  return (float)((pairs & 0xFFFFu) + (pairs >> 16));
}
#endif

// One value for each of ROWS rows: element m belongs to row m.
#ifdef ROWS
#if ROWS == 1
typedef float rows_t;
#define LOAD_ROWS(index, pointer) ((pointer)[index])
#elif ROWS == 2
typedef float2 rows_t;
#define LOAD_ROWS(index, pointer) vload2(index, pointer)
#elif ROWS == 4
typedef float4 rows_t;
#define LOAD_ROWS(index, pointer) vload4(index, pointer)
#elif ROWS == 8
typedef float8 rows_t;
#define LOAD_ROWS(index, pointer) vload8(index, pointer)
#else
typedef float16 rows_t;
#define LOAD_ROWS(index, pointer) vload16(index, pointer)
#endif
#endif

// Sum over a work-group of `size` work-items (a power of two); `scratch` holds `size` floats. Every work-item gets it.
ALWAYS_INLINE float group_sum(float value, __local float* scratch, uint id, uint size) {
  scratch[id] = value;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_size = size / 2; half_size > 0; half_size /= 2) {
    if (id < half_size) scratch[id] += scratch[id + half_size];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float sum = scratch[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return sum;
}

ALWAYS_INLINE float sigmoid(float x) {
  return 1.0f / (1.0f + exp(-x));
}

// Activation codes: 0 silu, 1 gelu_tanh, 2 clamped_swiglu (operations.h).
ALWAYS_INLINE float gated(int activation, float gate, float up) {
  if (activation == 0) return gate * sigmoid(gate) * up;
  if (activation == 1)
    return 0.5f * gate * (1.0f + tanh(0.797884560802865355f * (gate + 0.044715f * gate * gate * gate))) * up;
  const float g = fmin(gate, 7.0f);
  return g * sigmoid(1.702f * g) * (clamp(up, -7.0f, 7.0f) + 1.0f);
}
