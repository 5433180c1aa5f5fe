// Attention over paged caches or rings. CACHE: 0 f32, 1 f16, 2 i8 with an fp32 scale behind every head.
#include "portable.h"

// One layer and step: mirrors opencl::AttentionShape.
typedef struct {
  ulong q, k, v, out, keys, values;              // element offsets (of bytes for an i8 cache)
  ulong positions, row_sequence, slots, pages, q_weight, k_weight, inv_freq, sinks;
  ulong cache_stride, ring;
  long window;
  uint q_stride, k_stride, v_stride, out_stride, pages_stride, page_size;
  uint heads, kv_heads, head_dim, rope_dims, parts, flags;
  float q_eps, k_eps, scale, magnitude, soft_cap, growth, growth_length, reserved;
} shape_t;

#define GATED 1u
#define Q_NORM 2u
#define K_NORM 4u
#define INTERLEAVED 8u
#define SINKS 16u

#if CACHE == 2
typedef __global uchar *cache_t;
#define HEAD_BYTES(shape) ((shape)->head_dim + 4u)
#elif CACHE == 1
typedef __global ushort *cache_t;
#else
typedef __global float *cache_t;
#endif

#define LANES 64u
#define MAX_HEAD 512

// Where head `h` of the token at `position` of `sequence` lies in the cache.
ALWAYS_INLINE ulong cache_at(const shape_t *s, __global const int *slots, __global const int *pages, uint sequence,
                             uint position, uint h) {
  ulong row;
  if (s->ring > 0)
    row = (ulong)slots[s->slots + sequence] * s->ring + position % s->ring;
  else
    row = (ulong)pages[s->pages + (ulong)sequence * s->pages_stride + position / s->page_size] * s->page_size +
          position % s->page_size;
#if CACHE == 2
  return row * s->cache_stride + (ulong)h * HEAD_BYTES(s);
#else
  return row * s->cache_stride + (ulong)h * s->head_dim;
#endif
}

// A work-group stores `count` values to the cache.
ALWAYS_INLINE void store_head(cache_t cache, ulong at, __local const float *values, uint count, __local float *scratch) {
  const uint lane = get_local_id(0);
#if CACHE == 2
  float largest = 0.0f;
  for (uint i = 0; i < count; ++i) largest = fmax(largest, fabs(values[i]));
  const float scale = largest / 127.0f, inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
  for (uint i = lane; i < count; i += LANES) cache[at + i] = as_uchar(convert_char_sat_rte(values[i] * inverse));
  if (lane < 4u) cache[at + count + lane] = (uchar)(as_uint(scale) >> (8u * lane));
#elif CACHE == 1
  for (uint i = lane; i < count; i += LANES) store_half(values[i], cache, at + i);
#else
  for (uint i = lane; i < count; i += LANES) cache[at + i] = values[i];
#endif
}

#if CACHE == 2
ALWAYS_INLINE float cache_scale(cache_t cache, ulong at, uint count) {
  return as_float((uint)cache[at + count] | (uint)cache[at + count + 1u] << 8 | (uint)cache[at + count + 2u] << 16 |
                  (uint)cache[at + count + 3u] << 24);
}
#endif

ALWAYS_INLINE float cache_value(cache_t cache, ulong at) {
#if CACHE == 2
  return (float)as_char(cache[at]);
#elif CACHE == 1
  return load_half(cache, at);
#else
  return cache[at];
#endif
}

// Norms and rotates one q head in place, or one k head into the cache with its v head. Work-group (row, head).
SUB_GROUP __kernel void attention_prepare(const shape_t s, __global float *q, __global const float *k, __global const float *v,
                                __global void *keys, __global void *values, __global const int *positions,
                                __global const int *row_sequence, __global const int *slots, __global const int *pages,
                                __global const float *q_weight, __global const float *k_weight,
                                __global const float *inv_freq) {
  __local float head[MAX_HEAD], turned[MAX_HEAD], scratch[LANES];
  const uint lane = get_local_id(0), row = get_group_id(0), index = get_group_id(1);
  const bool is_key = index >= s.heads;
  const uint h = is_key ? index - s.heads : index, width = s.head_dim;
  const uint position = positions[s.positions + row];
  const ulong from = is_key ? s.k + (ulong)row * s.k_stride + (ulong)h * width
                            : s.q + (ulong)row * s.q_stride + (ulong)h * width * ((s.flags & GATED) ? 2u : 1u);
  float sum = 0.0f;
  for (uint i = lane; i < width; i += LANES) {
    const float value = is_key ? k[from + i] : q[from + i];
    head[i] = value;
    sum = fma(value, value, sum);
  }
  sum = group_sum(sum, scratch, lane, LANES);
  const bool normed = (s.flags & (is_key ? K_NORM : Q_NORM)) != 0;
  if (normed) {
    const float factor = 1.0f / sqrt(sum / (float)width + (is_key ? s.k_eps : s.q_eps));
    for (uint i = lane; i < width; i += LANES)
      head[i] *= factor * (is_key ? k_weight[s.k_weight + i] : q_weight[s.q_weight + i]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint pairs = s.rope_dims / 2u;
  for (uint i = lane; i < width; i += LANES) {
    float value = head[i];
    if (i < s.rope_dims) {
      const bool interleaved = (s.flags & INTERLEAVED) != 0;
      const uint pair = interleaved ? i / 2u : i % pairs;
      const bool second = interleaved ? (i & 1u) != 0 : i >= pairs;
      const float other = head[interleaved ? i ^ 1u : second ? i - pairs : i + pairs];
      const float angle = (float)position * inv_freq[s.inv_freq + pair];
      const float cosine = cos(angle) * s.magnitude, sine = sin(angle) * s.magnitude;
      value = second ? fma(value, cosine, other * sine) : fma(value, cosine, -other * sine);
    }
    turned[i] = value;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (!is_key) {
    for (uint i = lane; i < width; i += LANES) q[from + i] = turned[i];
    return;
  }
  const ulong at = cache_at(&s, slots, pages, row_sequence[s.row_sequence + row], position, h);
  store_head((cache_t)keys, s.keys + at, turned, width, scratch);
  for (uint i = lane; i < width; i += LANES) head[i] = v[s.v + (ulong)row * s.v_stride + (ulong)h * width + i];
  barrier(CLK_LOCAL_MEM_FENCE);
  store_head((cache_t)values, s.values + at, head, width, scratch);
}

// One query head over one of `parts` runs of its tokens. Work-group (row, head, part). With one part the result is
// final; else `partial` gets head_dim sums, the largest score and the sum of exponentials of each part.
SUB_GROUP __kernel void attention_attend(const shape_t s, __global const float *q, __global void *keys, __global void *values,
                               __global const int *positions, __global const int *row_sequence,
                               __global const int *slots, __global const int *pages, __global const float *sinks,
                               __global float *out, __global float *partial) {
  __local float query[MAX_HEAD], scores[LANES];
  __local ulong at[LANES];
  const uint lane = get_local_id(0), row = get_group_id(0), h = get_group_id(1), part = get_group_id(2);
  const uint width = s.head_dim, kv_head = h / (s.heads / s.kv_heads);
  const uint position = positions[s.positions + row], sequence = row_sequence[s.row_sequence + row];
  const uint oldest = s.window > 0 && (long)position + 1 > s.window ? position + 1u - (uint)s.window : 0u;
  const uint tokens = position + 1u - oldest;
  const uint run = ((tokens + s.parts - 1u) / s.parts + LANES - 1u) / LANES * LANES;
  const uint first = min(tokens, part * run), last = min(tokens, first + run);
  const ulong from = s.q + (ulong)row * s.q_stride + (ulong)h * width * ((s.flags & GATED) ? 2u : 1u);
  float scale = s.scale;
  if (s.growth > 0.0f) scale *= 1.0f + s.growth * log(1.0f + floor((float)position / s.growth_length));
  for (uint i = lane; i < width; i += LANES) query[i] = q[from + i] * scale;

  float largest = -INFINITY, total = 0.0f;
  float sums[MAX_HEAD / 64];
  UNROLL
  for (int i = 0; i < MAX_HEAD / 64; ++i) sums[i] = 0.0f;
  for (uint chunk = first; chunk < last; chunk += LANES) {
    const uint count = min(LANES, last - chunk);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < count) {
      const ulong key = cache_at(&s, slots, pages, sequence, oldest + chunk + lane, kv_head);
      float score = 0.0f;
      for (uint i = 0; i < width; ++i) score = fma(query[i], cache_value((cache_t)keys, s.keys + key + i), score);
#if CACHE == 2
      score *= cache_scale((cache_t)keys, s.keys + key, width);
#endif
      if (s.soft_cap > 0.0f) score = s.soft_cap * tanh(score / s.soft_cap);
      at[lane] = key;
      scores[lane] = score;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float chunk_largest = largest;
    for (uint t = 0; t < count; ++t) chunk_largest = fmax(chunk_largest, scores[t]);
    const float shrink = exp(largest - chunk_largest);
    largest = chunk_largest;
    total *= shrink;
    UNROLL
    for (int i = 0; i < MAX_HEAD / 64; ++i) sums[i] *= shrink;
    for (uint t = 0; t < count; ++t) {
      const float weight = exp(scores[t] - largest);
      total += weight;
      const ulong value = s.values + at[t];
#if CACHE == 2
      const float factor = weight * cache_scale((cache_t)values, value, width);
#else
      const float factor = weight;
#endif
      UNROLL
      for (int i = 0; i < MAX_HEAD / 64; ++i) {
        const uint d = lane + 64u * i;
        if (d < width) sums[i] = fma(factor, cache_value((cache_t)values, value + d), sums[i]);
      }
    }
  }
  if (s.parts > 1u) {
    __global float *to = partial + (((ulong)row * s.heads + h) * s.parts + part) * (width + 2u);
    for (uint i = 0; lane + 64u * i < width; ++i) to[lane + 64u * i] = sums[i];
    if (lane == 0) {
      to[width] = largest;
      to[width + 1u] = total;
    }
    return;
  }
  float share = 1.0f;
  if (s.flags & SINKS) {
    const float sink = sinks[s.sinks + h], most = fmax(largest, sink);
    share = exp(largest - most);
    total = total * share + exp(sink - most);
  }
  for (uint i = 0; lane + 64u * i < width; ++i) {
    const uint d = lane + 64u * i;
    const float gate = (s.flags & GATED) ? sigmoid(q[from + width + d]) : 1.0f;
    out[s.out + (ulong)row * s.out_stride + (ulong)h * width + d] = sums[i] * share / total * gate;
  }
}

// Joins the parts of one query head. Work-group (row, head).
SUB_GROUP __kernel void attention_join(const shape_t s, __global const float *q, __global const float *sinks, __global float *out,
                             __global const float *partial) {
  const uint lane = get_local_id(0), row = get_group_id(0), h = get_group_id(1), width = s.head_dim;
  __global const float *from = partial + ((ulong)row * s.heads + h) * s.parts * (width + 2u);
  float largest = (s.flags & SINKS) ? sinks[s.sinks + h] : -INFINITY;
  for (uint p = 0; p < s.parts; ++p) largest = fmax(largest, from[p * (width + 2u) + width]);
  float total = (s.flags & SINKS) ? exp(sinks[s.sinks + h] - largest) : 0.0f;
  for (uint p = 0; p < s.parts; ++p)
    total += from[p * (width + 2u) + width + 1u] * exp(from[p * (width + 2u) + width] - largest);
  const ulong gates = s.q + (ulong)row * s.q_stride + (ulong)h * width * 2u + width;
  for (uint d = lane; d < width; d += LANES) {
    float sum = 0.0f;
    for (uint p = 0; p < s.parts; ++p)
      sum = fma(from[p * (width + 2u) + d], exp(from[p * (width + 2u) + width] - largest), sum);
    const float gate = (s.flags & GATED) ? sigmoid(q[gates + d]) : 1.0f;
    out[s.out + (ulong)row * s.out_stride + (ulong)h * width + d] = sum / total * gate;
  }
}
