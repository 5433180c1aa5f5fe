// From router logits to picks, and from picks to units of work.
#include "portable.h"
#include "moe_work.h"

// Choices of a layer: mirrors opencl::RoutingShape. score: 0 softmax over the chosen, 1 softmax over all, 2 sigmoid.
typedef struct {
  uint rows, experts, top_k, shared, score, groups, top_groups, gate;  // gate: the shared expert has one
  float routed_scale, reserved;
} routing_t;

#define SIZE 64u
#define MAX_GROUPS 64

// Fills expert_of and weight_of. Work-group a row; `choosing` has as many floats as there are experts.
SUB_GROUP __kernel void moe_route(const routing_t s, __global uchar *work, const work_t at, __global const float *correction,
                        __local float *choosing) {
  __local float best[SIZE];
  __local uint who[SIZE];
  __local float group_score[MAX_GROUPS];
  const uint id = get_local_id(0);
  const ulong row = get_group_id(0);
  __global const float *own = WORK(float, at.logits) + row * at.logit_stride;
  __global int *expert_of = WORK(int, at.expert_of) + row * at.per_row;
  __global float *weight_of = WORK(float, at.weight_of) + row * at.per_row;
  for (uint e = id; e < s.experts; e += SIZE) choosing[e] = s.score == 2u ? sigmoid(own[e]) + correction[e] : own[e];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (s.groups > 1u) {
    const uint width = s.experts / s.groups;
    for (uint g = id; g < s.groups; g += SIZE) {
      float first = -INFINITY, second = -INFINITY;
      for (uint i = 0; i < width; ++i) {
        const float value = choosing[g * width + i];
        second = fmax(second, fmin(first, value));
        first = fmax(first, value);
      }
      group_score[g] = first + (width > 1u ? second : 0.0f);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = id; e < s.experts; e += SIZE) {
      const uint g = e / width;
      uint better = 0;
      for (uint i = 0; i < s.groups; ++i)
        better += group_score[i] > group_score[g] || (group_score[i] == group_score[g] && i < g) ? 1u : 0u;
      if (better >= s.top_groups) choosing[e] = -INFINITY;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  float total = 0.0f, largest = 0.0f;
  for (uint rank = 0; rank < s.top_k; ++rank) {
    float value = -INFINITY;
    uint expert = 0xFFFFFFFFu;
    for (uint e = id; e < s.experts; e += SIZE) {
      if (choosing[e] > value) {
        value = choosing[e];
        expert = e;
      }
    }
    best[id] = value;
    who[id] = expert;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint span = SIZE / 2u; span > 0; span /= 2u) {
      if (id < span) {
        const bool other = best[id + span] > best[id] || (best[id + span] == best[id] && who[id + span] < who[id]);
        if (other) {
          best[id] = best[id + span];
          who[id] = who[id + span];
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const uint chosen = min(who[0], s.experts - 1u);  // logits that are not numbers choose the last
    barrier(CLK_LOCAL_MEM_FENCE);
    const float logit = own[chosen];
    if (rank == 0) largest = logit;
    const float score = s.score == 2u ? sigmoid(logit) : exp(logit - largest);
    total += score;
    if (id == 0) {
      choosing[chosen] = -INFINITY;
      expert_of[rank] = (int)chosen;
      weight_of[rank] = score;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (s.score == 1u) {
    float sum = 0.0f;
    for (uint e = id; e < s.experts; e += SIZE) sum += exp(own[e] - largest);
    total = group_sum(sum, best, id, SIZE);
  }
  barrier(CLK_GLOBAL_MEM_FENCE);
  if (id == 0) {
    const float factor = s.score == 2u ? s.routed_scale / (total + 1e-20f) : 1.0f / total;
    for (uint rank = 0; rank < s.top_k; ++rank) weight_of[rank] *= factor;
    if (s.shared) {
      expert_of[s.top_k] = (int)s.experts;
      weight_of[s.top_k] = s.gate ? sigmoid(own[s.experts]) : 1.0f;
    }
  }
}

// Groups picks by expert into units of at most `unit_rows`: units[u] = (expert, first place, count), order[place] =
// pick, unit_count. Places of an expert are in the order of its picks. One work-group; local memory: 2 * (experts + 1).
SUB_GROUP __kernel void moe_group(__global uchar *work, const work_t at, const uint picks, const uint experts,
                        const uint unit_rows, __local int *first_place, __local int *first_unit) {
  __global const int *expert_of = WORK(const int, at.expert_of);
  __global int *order = WORK(int, at.order);
  __global int4 *units = WORK(int4, at.units);
  const uint id = get_local_id(0), size = get_local_size(0);
  for (uint e = id; e < experts; e += size) {
    int count = 0;
    for (uint p = 0; p < picks; ++p) count += expert_of[p] == (int)e ? 1 : 0;
    first_place[e] = count;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (id == 0) {
    int place = 0, unit = 0;
    for (uint e = 0; e < experts; ++e) {
      const int count = first_place[e];
      first_place[e] = place;
      first_unit[e] = unit;
      place += count;
      unit += (count + (int)unit_rows - 1) / (int)unit_rows;
    }
    first_place[experts] = place;
    *WORK(int, at.unit_count) = unit;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint e = id; e < experts; e += size) {
    int place = first_place[e];
    const int last = first_place[e + 1u];
    if (place == last) continue;
    int unit = first_unit[e];
    for (int first = place; first < last; first += (int)unit_rows)
      units[unit++] = (int4)((int)e, first, min((int)unit_rows, last - first), 0);
    for (uint p = 0; p < picks; ++p)
      if (expert_of[p] == (int)e) order[place++] = (int)p;
  }
}
