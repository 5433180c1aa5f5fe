#pragma once

#include "backend/batch.h"
#include "backend/operations.h"
#include "base/thread_pool.h"

namespace pergola::reference {

/// Backend::delta_net. For each sequence of the batch:
///   c_t = silu(sum_j w_j * qkv_{t - kernel + 1 + j}) per channel, history from the slot's window; channels are all q
///   heads, all k heads, all v heads; q <- L2(q) / sqrt(key_dim), k <- L2(k), with L2(x) = x * rsqrt(sum(x^2) + 1e-6);
///   beta = sigmoid(b), g = -exp(a_log) * softplus(a + dt_bias) per value head; the delta rule (delta_rule.h) with the
///   slot's state; out = RMS(o) * norm.weight * silu(z) per value head.
/// Values between the stages are stored as float, sums are double.
void delta_net(const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& a,
               const DeltaNetState& state, const Batch& batch, const Tensor& out, ThreadPool& pool);

}  // namespace pergola::reference
