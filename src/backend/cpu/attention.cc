#include "backend/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/elementwise.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/rotary.h"

namespace pergola::cpu {
namespace {

constexpr std::int64_t kQueries = 64;        ///< most queries of a block
constexpr std::int64_t kKeys = 64;           ///< keys visited at a time
constexpr std::int64_t kDirectQueries = 16;  ///< up to this many queries the cache is read where it lies
constexpr std::int64_t kPadding = 16;        ///< floats after a matrix row, so that rows fall into different cache sets
constexpr std::int64_t kSplitRows = 32;      ///< keys are split for sequences with fewer rows in the step
constexpr std::int64_t kMinSplitKeys = 256;
constexpr std::int64_t kMaxSplits = 32;
constexpr std::int64_t kWaveBlocks = 4096;
constexpr std::int64_t kWaveItems = 16384;
constexpr std::int64_t kWavePartials = kQueries * kMaxSplits;
constexpr std::int64_t kSerialProducts = 64 * 1024;  ///< multiply-adds that are not worth a fork

/// Queries of one sequence that share a kv head: `rows` rows times `heads` heads, query row * heads + head.
struct Block {
  std::int64_t sequence;
  std::int64_t kv_head;
  std::int64_t first_head;
  std::int64_t heads;
  std::int64_t first_row;
  std::int64_t rows;
  std::int64_t first_key;   ///< that its first row attends to: 0 without a window
  std::int64_t keys;        ///< end of the keys that its last row attends to
  std::int64_t split_keys;  ///< keys of a part
  std::int64_t splits;
  std::int64_t partial;  ///< first of queries() * splits places for partial results, if splits > 1

  std::int64_t queries() const { return rows * heads; }
};

/// One part of the keys of a block.
struct Item {
  std::int32_t block;
  std::int32_t split;
};

struct SharedWork {
  Block* blocks;
  Item* items;
  float* sums;     ///< [kWavePartials, head_dim]
  float* maximum;  ///< [kWavePartials]
  float* total;    ///< [kWavePartials]

  static SharedWork carve(const Attention& layer, Carver& carver) {
    return {carver.take<Block>(kWaveBlocks), carver.take<Item>(kWaveItems),
            carver.take<float>(kWavePartials * layer.head_dim), carver.take<float>(kWavePartials),
            carver.take<float>(kWavePartials)};
  }
};

struct MemberWork {
  std::int64_t ld;  ///< of `rows` and `sums`
  float* cosine;    ///< [dims / 2]
  float* sine;      ///< [dims / 2]
  float* queries;   ///< [kQueries, head_dim], times the scale
  float* scores;    ///< [kQueries, kKeys]
  float* sums;      ///< [kQueries, ld]: sum of exp(score - maximum) * value
  float* rows;      ///< [kKeys, ld]: keys or values as floats
  float* keys;      ///< [head_dim, kKeys + kPadding], transposed
  float* maximum;   ///< [kQueries]
  float* total;     ///< [kQueries]

  static MemberWork carve(const Attention& layer, Carver& carver) {
    const std::int64_t dim = layer.head_dim, ld = dim + kPadding;
    return {ld,
            carver.take<float>(layer.rope.dims / 2),
            carver.take<float>(layer.rope.dims / 2),
            carver.take<float>(kQueries * dim),
            carver.take<float>(kQueries * kKeys),
            carver.take<float>(kQueries * ld),
            carver.take<float>(kKeys * ld),
            carver.take<float>(dim * (kKeys + kPadding)),
            carver.take<float>(kQueries),
            carver.take<float>(kQueries)};
  }
};

class AttentionStep {
 public:
  AttentionStep(const Context& context, const Attention& layer, const Tensor& q, const KvLayer& cache,
                const Batch& batch, const Tensor& out)
      : context_(context),
        floats_(context.floats),
        elements_(floats_.of(cache.keys.dtype)),
        layer_(layer),
        q_(q),
        cache_(cache),
        batch_(batch),
        out_(out) {
    Carver carver(context.work.shared());
    shared_ = SharedWork::carve(layer, carver);
  }

  void append(const Tensor& k, const Tensor& v) {
    const std::int64_t width = q_.columns + k.columns;
    for_rows_with_member(batch_.rows, width, [&](std::int64_t row, int member) { append_row(k, v, row, member); });
  }

  void attend() {
    for (std::int64_t sequence = 0; sequence < batch_.sequences; ++sequence) plan_sequence(sequence);
    flush();
  }

 private:
  std::int64_t head_dim() const { return layer_.head_dim; }
  std::int64_t query_width() const { return layer_.gated ? 2 * head_dim() : head_dim(); }
  std::int64_t position(std::int64_t row) const { return batch_.positions.data<std::int32_t>()[row]; }

  MemberWork member_work(int member) const {
    Carver carver(context_.work.of_thread(member));
    return MemberWork::carve(layer_, carver);
  }

  template <typename Work>
  void for_rows_with_member(std::int64_t rows, std::int64_t width, const Work& work) {
    if (rows * width < kSerialValues) {
      for (std::int64_t row = 0; row < rows; ++row) work(row, 0);
    } else {
      context_.pool.parallel_for(rows, work);
    }
  }

  void norm_and_rotate(const std::optional<RmsNorm>& norm, const MemberWork& work, float* head) const {
    if (norm) {
      const float factor = rms_factor(floats_.sum_squares(head, head_dim()), head_dim(), norm->eps);
      floats_.scale_weighted(head, norm->weight.data<float>(), factor, head, head_dim());
    }
    rotate_head(floats_, layer_.rope, work.cosine, work.sine, head);
  }

  /// Norms and rotates the row's heads in place and writes its keys and values to the cache.
  void append_row(const Tensor& k, const Tensor& v, std::int64_t row, int member) const {
    const MemberWork work = member_work(member);
    rotary_angles(layer_.rope, position(row), work.cosine, work.sine);
    for (int head = 0; head < layer_.heads; ++head) {
      norm_and_rotate(layer_.q_norm, work, q_.row<float>(row) + head * query_width());
    }
    for (int head = 0; head < layer_.kv_heads; ++head) {
      norm_and_rotate(layer_.k_norm, work, k.row<float>(row) + head * head_dim());
    }
    const std::int64_t sequence = batch_.row_sequence.data<std::int32_t>()[row];
    const std::int64_t place = cache_row(sequence, position(row));
    elements_.from_float(k.row<float>(row), element(cache_.keys, place, 0), k.columns);
    elements_.from_float(v.row<float>(row), element(cache_.values, place, 0), v.columns);
  }

  std::int64_t cache_row(std::int64_t sequence, std::int64_t token) const {
    if (cache_.ring > 0) return batch_.slots.data<std::int32_t>()[sequence] * cache_.ring + token % cache_.ring;
    const std::int64_t page = batch_.page_table.row<std::int32_t>(sequence)[token / cache_.page_size];
    return page * cache_.page_size + token % cache_.page_size;
  }

  static std::byte* element(const Tensor& tensor, std::int64_t row, std::int64_t column) {
    return static_cast<std::byte*>(tensor.buffer->address()) + tensor.offset +
           (row * tensor.stride + column) * static_cast<std::int64_t>(size_of(tensor.dtype));
  }

  /// Calls use(offset, cache row, count) for the pieces of tokens [first, first + count) that lie in one page or in
  /// one turn of a ring.
  template <typename Use>
  void for_pieces(std::int64_t sequence, std::int64_t first, std::int64_t count, const Use& use) const {
    const std::int64_t run = cache_.ring > 0 ? cache_.ring : cache_.page_size;
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t token = first + done;
      const std::int64_t in_page = std::min(count - done, run - token % run);
      use(done, cache_row(sequence, token), in_page);
      done += in_page;
    }
  }

  // --- planning ---

  /// Cuts the rows of a sequence into blocks, last rows first: they have the most keys.
  void plan_sequence(std::int64_t sequence) {
    const std::int32_t* starts = batch_.row_start.data<std::int32_t>();
    const std::int64_t begin = starts[sequence], end = starts[sequence + 1];
    const std::int64_t group = layer_.heads / layer_.kv_heads;
    const std::int64_t block_heads = std::min(group, kQueries);
    const std::int64_t blocks_of_group = (group + block_heads - 1) / block_heads;
    const std::int64_t block_rows = kQueries / block_heads;
    for (std::int64_t last = end; last > begin; last -= block_rows) {
      const std::int64_t first = std::max(begin, last - block_rows);
      for (std::int64_t i = 0; i < layer_.kv_heads * blocks_of_group; ++i) {
        const std::int64_t kv_head = i / blocks_of_group;
        const std::int64_t head = i % blocks_of_group * block_heads;
        plan_block({.sequence = sequence,
                    .kv_head = kv_head,
                    .first_head = kv_head * group + head,
                    .heads = std::min(block_heads, group - head),
                    .first_row = first,
                    .rows = last - first,
                    .first_key = first_key(first),
                    .keys = position(last - 1) + 1},
                   end - begin < kSplitRows);
      }
    }
  }

  /// The first key that the row sees.
  std::int64_t first_key(std::int64_t row) const {
    return layer_.window > 0 ? std::max<std::int64_t>(0, position(row) - layer_.window + 1) : 0;
  }

  void plan_block(Block block, bool split) {
    const std::int64_t keys = block.keys - block.first_key;
    block.split_keys = keys;
    if (split) {
      const std::int64_t even = (keys + kMaxSplits - 1) / kMaxSplits;
      block.split_keys = std::max(kMinSplitKeys, (even + kKeys - 1) / kKeys * kKeys);
    }
    block.splits = (keys + block.split_keys - 1) / block.split_keys;
    const std::int64_t places = block.splits > 1 ? block.splits * block.queries() : 0;
    if (blocks_ == kWaveBlocks || items_ + block.splits > kWaveItems || partials_ + places > kWavePartials) flush();
    block.partial = partials_;
    partials_ += places;
    products_ += block.queries() * keys * head_dim();
    for (std::int64_t s = 0; s < block.splits; ++s) {
      shared_.items[items_++] = {static_cast<std::int32_t>(blocks_), static_cast<std::int32_t>(s)};
    }
    shared_.blocks[blocks_++] = block;
  }

  /// Works off what was planned.
  void flush() {
    const auto attend = [&](std::int64_t i, int member) { run_item(shared_.items[i], member); };
    const auto combine = [&](std::int64_t i, int) { combine_block(shared_.blocks[i]); };
    if (products_ < kSerialProducts) {
      for (std::int64_t i = 0; i < items_; ++i) attend(i, 0);
    } else {
      context_.pool.parallel_for(items_, attend);
    }
    if (partials_ > 0) context_.pool.parallel_for(blocks_, combine);
    blocks_ = items_ = partials_ = products_ = 0;
  }

  // --- one item ---

  void run_item(const Item& item, int member) const {
    const Block& block = shared_.blocks[item.block];
    const MemberWork work = member_work(member);
    load_queries(block, work);
    const std::int64_t first = block.first_key + item.split * block.split_keys;
    const std::int64_t end = std::min(block.keys, first + block.split_keys);
    for (std::int64_t key = first; key < end; key += kKeys) {
      const std::int64_t count = std::min(kKeys, end - key);
      score(block, work, key, count);
      for (std::int64_t query = 0; query < block.queries(); ++query) weigh(block, work, query, key, count);
      add_values(block, work, key, count);
    }
    store(block, item.split, work);
  }

  float query_growth(std::int64_t position) const {
    if (layer_.query_growth <= 0) return 1.0f;
    return 1.0f + layer_.query_growth * std::log(1.0f + static_cast<float>(position / layer_.query_growth_length));
  }

  void load_queries(const Block& block, const MemberWork& work) const {
    for (std::int64_t query = 0; query < block.queries(); ++query) {
      const float* head = q_.row<float>(block.first_row + query / block.heads) +
                          (block.first_head + query % block.heads) * query_width();
      const float scale = layer_.scale * query_growth(position(block.first_row + query / block.heads));
      floats_.scale(head, scale, work.queries + query * head_dim(), head_dim());
      std::fill_n(work.sums + query * work.ld, head_dim(), 0.0f);
      work.maximum[query] = -std::numeric_limits<float>::infinity();
      work.total[query] = 0.0f;
    }
  }

  /// scores = queries keys^T for `count` keys from `key` on.
  void score(const Block& block, const MemberWork& work, std::int64_t key, std::int64_t count) const {
    const std::int64_t column = block.kv_head * head_dim();
    if (block.queries() <= kDirectQueries) {
      for_pieces(block.sequence, key, count, [&](std::int64_t offset, std::int64_t row, std::int64_t n) {
        elements_.dot(work.scores + offset, kKeys, work.queries, head_dim(), element(cache_.keys, row, column),
                      cache_.keys.stride, block.queries(), n, head_dim());
      });
      return;
    }
    convert(block, work, cache_.keys, key, count);
    floats_.transpose(work.rows, work.ld, work.keys, kKeys + kPadding, count, head_dim());
    floats_.f32.multiply(work.scores, kKeys, work.queries, head_dim(), 1, work.keys, kKeys + kPadding, block.queries(),
                         count, head_dim(), false);
  }

  void convert(const Block& block, const MemberWork& work, const Tensor& from, std::int64_t key,
               std::int64_t count) const {
    for_pieces(block.sequence, key, count, [&](std::int64_t offset, std::int64_t row, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) {
        elements_.to_float(element(from, row + i, block.kv_head * head_dim()), work.rows + (offset + i) * work.ld,
                           head_dim());
      }
    });
  }

  /// Turns the scores of one query into weights; keys after the query's own token and before its window get 0.
  void weigh(const Block& block, const MemberWork& work, std::int64_t query, std::int64_t key,
             std::int64_t count) const {
    float* scores = work.scores + query * kKeys;
    const std::int64_t row = block.first_row + query / block.heads;
    const std::int64_t end = std::clamp<std::int64_t>(position(row) + 1 - key, 0, count);
    const std::int64_t begin = std::clamp<std::int64_t>(first_key(row) - key, 0, end);
    std::fill(scores, scores + begin, 0.0f);
    std::fill(scores + end, scores + count, 0.0f);
    if (begin == end) return;
    scores += begin;
    const std::int64_t valid = end - begin;
    if (layer_.soft_cap > 0) soft_cap(floats_, scores, layer_.soft_cap, valid);
    const float largest = floats_.max_value(scores, valid);
    if (largest > work.maximum[query]) {
      const float factor = std::exp(work.maximum[query] - largest);
      work.total[query] *= factor;
      floats_.scale(work.sums + query * work.ld, factor, work.sums + query * work.ld, head_dim());
      work.maximum[query] = largest;
    }
    work.total[query] += floats_.exp_sum(scores, work.maximum[query], valid);
  }

  void add_values(const Block& block, const MemberWork& work, std::int64_t key, std::int64_t count) const {
    if (block.queries() <= kDirectQueries) {
      for_pieces(block.sequence, key, count, [&](std::int64_t offset, std::int64_t row, std::int64_t n) {
        elements_.multiply(work.sums, work.ld, work.scores + offset, kKeys, 1,
                           element(cache_.values, row, block.kv_head * head_dim()), cache_.values.stride,
                           block.queries(), head_dim(), n, true);
      });
      return;
    }
    convert(block, work, cache_.values, key, count);
    floats_.f32.multiply(work.sums, work.ld, work.scores, kKeys, 1, work.rows, work.ld, block.queries(), head_dim(),
                         count, true);
  }

  void store(const Block& block, std::int64_t split, const MemberWork& work) const {
    for (std::int64_t query = 0; query < block.queries(); ++query) {
      const float* sums = work.sums + query * work.ld;
      if (block.splits == 1) {
        finish(block, query, sums, work.maximum[query], work.total[query]);
        continue;
      }
      const std::int64_t place = block.partial + query * block.splits + split;
      std::copy_n(sums, head_dim(), shared_.sums + place * head_dim());
      shared_.maximum[place] = work.maximum[query];
      shared_.total[place] = work.total[query];
    }
  }

  /// Adds up the parts of every query, first part first.
  void combine_block(const Block& block) const {
    if (block.splits == 1) return;
    for (std::int64_t query = 0; query < block.queries(); ++query) {
      const std::int64_t first = block.partial + query * block.splits;
      const float largest = *std::max_element(shared_.maximum + first, shared_.maximum + first + block.splits);
      float* sums = shared_.sums + first * head_dim();
      float total = 0;
      for (std::int64_t s = 0; s < block.splits; ++s) {
        const float factor = std::exp(shared_.maximum[first + s] - largest);
        total += factor * shared_.total[first + s];
        if (s == 0) {
          floats_.scale(sums, factor, sums, head_dim());
        } else {
          floats_.add_scaled(sums, sums + s * head_dim(), factor, head_dim());
        }
      }
      finish(block, query, sums, largest, total);
    }
  }

  /// `total` is the sum of exp(score - maximum).
  void finish(const Block& block, std::int64_t query, const float* sums, float maximum, float total) const {
    const std::int64_t row = block.first_row + query / block.heads;
    const std::int64_t head = block.first_head + query % block.heads;
    float* result = out_.row<float>(row) + head * head_dim();
    if (layer_.sinks) total += std::exp(layer_.sinks.data<float>()[head] - maximum);
    floats_.scale(sums, 1.0f / total, result, head_dim());
    if (layer_.gated) {
      floats_.sigmoid_multiply(result, q_.row<float>(row) + head * query_width() + head_dim(), head_dim());
    }
  }

  const Context& context_;
  const FloatKernels& floats_;
  const ElementKernels& elements_;
  const Attention& layer_;
  const Tensor& q_;
  const KvLayer& cache_;
  const Batch& batch_;
  const Tensor& out_;
  SharedWork shared_;
  std::int64_t blocks_ = 0;
  std::int64_t items_ = 0;
  std::int64_t partials_ = 0;
  std::int64_t products_ = 0;
};

}  // namespace

WorkNeeds attention_needs(const Attention& layer) {
  Carver shared, member;
  SharedWork::carve(layer, shared);
  MemberWork::carve(layer, member);
  return {shared.used(), member.used()};
}

void attention(const Context& context, const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v,
               const KvLayer& cache, const Batch& batch, const Tensor& out) {
  assert(cache.keys.dtype == cache.values.dtype);
  AttentionStep step(context, layer, q, cache, batch, out);
  step.append(k, v);  // all rows first: rows of one sequence attend to each other
  step.attend();
}

}  // namespace pergola::cpu
