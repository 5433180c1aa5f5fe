#include "backend/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/reference/arithmetic.h"

namespace pergola::reference {

namespace {

/// The cache row of token `position` of a sequence.
std::int64_t cache_row(const Batch& batch, const KvLayer& cache, std::int64_t sequence, std::int64_t position) {
  if (cache.ring > 0) return batch.slots.data<std::int32_t>()[sequence] * cache.ring + position % cache.ring;
  const std::int64_t page = batch.page_table.row<std::int32_t>(sequence)[position / cache.page_size];
  return page * cache.page_size + position % cache.page_size;
}

void norm_and_rotate(const Attention& layer, const std::optional<RmsNorm>& norm, std::int64_t position, float* head) {
  if (norm) rms_normalize(head, norm->weight.data<float>(), norm->eps, layer.head_dim, head);
  rotate(layer.rope, position, head);
}

/// Prepares one row's q and k heads and appends its k and v to the cache.
void append_row(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& cache,
                const Batch& batch, std::int64_t r) {
  const std::int64_t position = batch.positions.data<std::int32_t>()[r];
  const std::int64_t query_width = std::int64_t{layer.head_dim} * (layer.gated ? 2 : 1);
  const std::int64_t kv_width = std::int64_t{layer.kv_heads} * layer.head_dim;
  for (std::int64_t h = 0; h < layer.heads; ++h)
    norm_and_rotate(layer, layer.q_norm, position, q.row<float>(r) + h * query_width);
  for (std::int64_t h = 0; h < layer.kv_heads; ++h)
    norm_and_rotate(layer, layer.k_norm, position, k.row<float>(r) + h * layer.head_dim);
  const std::int64_t row = cache_row(batch, cache, batch.row_sequence.data<std::int32_t>()[r], position);
  std::copy_n(k.row<float>(r), kv_width, cache.keys.row<float>(row));
  std::copy_n(v.row<float>(r), kv_width, cache.values.row<float>(row));
}

double query_growth(const Attention& layer, std::int64_t position) {
  if (layer.query_growth <= 0) return 1.0;
  return 1.0 + layer.query_growth * std::log(1.0 + static_cast<double>(position / layer.query_growth_length));
}

/// One query head of one row over the sequence so far.
void attend(const Attention& layer, const Tensor& q, const KvLayer& cache, const Batch& batch, std::int64_t r,
            std::int64_t head, float* out) {
  const std::int64_t sequence = batch.row_sequence.data<std::int32_t>()[r];
  const std::int64_t position = batch.positions.data<std::int32_t>()[r];
  const std::int64_t first = layer.window > 0 ? std::max<std::int64_t>(0, position - layer.window + 1) : 0;
  const std::int64_t tokens = position + 1 - first;
  const std::int64_t offset =
      head / (layer.heads / layer.kv_heads) * layer.head_dim;  // of the kv head inside a cache row
  const float* query = q.row<float>(r) + head * layer.head_dim * (layer.gated ? 2 : 1);

  const double scale = layer.scale * query_growth(layer, position);
  std::vector<double> weights(static_cast<std::size_t>(tokens));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* key = cache.keys.row<float>(cache_row(batch, cache, sequence, first + t)) + offset;
    const double score = scale * dot(query, key, layer.head_dim);
    weights[static_cast<std::size_t>(t)] =
        layer.soft_cap > 0 ? layer.soft_cap * std::tanh(score / layer.soft_cap) : score;
  }
  double largest = *std::max_element(weights.begin(), weights.end());
  double total = 0;
  if (layer.sinks) {
    const double sink = layer.sinks.data<float>()[head];
    largest = std::max(largest, sink);
    total = std::exp(sink - largest);
  }
  for (double& w : weights) total += w = std::exp(w - largest);

  std::vector<double> sum(static_cast<std::size_t>(layer.head_dim), 0.0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* value = cache.values.row<float>(cache_row(batch, cache, sequence, first + t)) + offset;
    const double w = weights[static_cast<std::size_t>(t)] / total;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += w * value[i];
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double gate = layer.gated ? sigmoid(query[layer.head_dim + static_cast<std::int64_t>(i)]) : 1.0;
    out[i] = static_cast<float>(sum[i] * gate);
  }
}

}  // namespace

void rotate(const Rope& rope, std::int64_t position, float* head) {
  const int pairs = rope.dims / 2;
  for (int j = 0; j < pairs; ++j) {
    const float angle = static_cast<float>(position) * rope.inv_freq.data<float>()[j];
    const double cosine = std::cos(static_cast<double>(angle)) * rope.magnitude;
    const double sine = std::sin(static_cast<double>(angle)) * rope.magnitude;
    float& first = head[rope.interleaved ? 2 * j : j];
    float& second = head[rope.interleaved ? 2 * j + 1 : j + pairs];
    const double a = first;
    const double b = second;
    first = static_cast<float>(a * cosine - b * sine);
    second = static_cast<float>(b * cosine + a * sine);
  }
}

void attention(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& cache,
               const Batch& batch, const Tensor& out, ThreadPool& pool) {
  // All rows are appended first: rows of one sequence may be in this very batch.
  pool.parallel_for(batch.rows, [&](std::int64_t r, int) { append_row(layer, q, k, v, cache, batch, r); });
  pool.parallel_for(batch.rows * layer.heads, [&](std::int64_t i, int) {
    const std::int64_t r = i / layer.heads;
    const std::int64_t head = i % layer.heads;
    attend(layer, q, cache, batch, r, head, out.row<float>(r) + head * layer.head_dim);
  });
}

}  // namespace pergola::reference
