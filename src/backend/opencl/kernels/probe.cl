// Compares every special instruction with its plain twin, bit for bit: mismatches[i] is a lane's count for instruction i
// (0 dot products, 1 sub-group broadcast, 2 matrix units with bytes, 3 with halves). One work-group of (64, 1).
#include "portable.h"
#include "trellis.h"

ALWAYS_INLINE uint scramble(uint x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

SUB_GROUP __kernel void probe(__global uint *mismatches) {
  __local ushort fragment[128];
  const uint lane = get_local_id(0);
  uint counts[4] = {0, 0, 0, 0};
  uint8 words;
  uint *word = (uint *)&words;
  for (uint i = 0; i < 8u; ++i) word[i] = scramble(lane * 8u + i);
  for (uint i = 0; i < 8u; ++i) {
    const uint other = scramble(~word[i]);
    counts[0] += dot_bytes(word[i], other, i) != dot_bytes_plain(word[i], other, i);
    counts[0] += dot_signed(word[i], other, 5 - (int)i) != dot_signed_plain(word[i], other, 5 - (int)i);
  }
  counts[1] = UNIFORM(lane / 16u) != lane / 16u;

  for (uint i = lane; i < 128u; i += LANES) fragment[i] = (ushort)scramble(1000u + i);
  barrier(CLK_LOCAL_MEM_FENCE);
  const int8 bytes = multiply_bytes(load_fragment(fragment), words, (int8)(3));
  const int8 bytes_plain = multiply_bytes_plain(fragment, words, (int8)(3));
  barrier(CLK_LOCAL_MEM_FENCE);
  // Small whole numbers, whose sums are exact in any order.
  for (uint i = lane; i < 128u; i += LANES) fragment[i] = half_bits((float)(scramble(i) % 31u) - 15.0f);
  for (uint i = 0; i < 8u; ++i)
    word[i] = half_bits((float)(word[i] % 31u) - 15.0f) | ((uint)half_bits((float)(word[i] % 29u) - 14.0f) << 16);
  barrier(CLK_LOCAL_MEM_FENCE);
  const float8 halves = multiply_halves(load_fragment(fragment), words, (float8)(1.0f));
  const float8 halves_plain = multiply_halves_plain(fragment, words, (float8)(1.0f));
  for (int m = 0; m < 8; ++m) {
    counts[2] += ((const int *)&bytes)[m] != ((const int *)&bytes_plain)[m];
    counts[3] += ((const float *)&halves)[m] != ((const float *)&halves_plain)[m];
  }
  for (int i = 0; i < 4; ++i) mismatches[i * LANES + lane] = counts[i];
}
