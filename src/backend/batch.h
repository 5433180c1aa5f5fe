#pragma once

#include <cstdint>

#include "backend/tensor.h"

namespace pergola {

/// The tokens of one step over one or more sequences. Rows of a sequence are adjacent and in order; sequences follow
/// each other.
///
/// The tensors live in device memory, so that a recorded step reads what varies from there. `rows`, `sequences` and
/// `max_rows_per_sequence` only shape launches; a recording is made for one shape.
struct Batch {
  std::int64_t rows = 0;
  std::int64_t sequences = 0;
  std::int64_t max_rows_per_sequence = 0;

  Tensor tokens;        ///< i32 [1, rows]
  Tensor positions;     ///< i32 [1, rows] index of the row's token in its sequence, from 0
  Tensor row_sequence;  ///< i32 [1, rows] which sequence a row belongs to, 0..sequences-1
  Tensor row_start;     ///< i32 [1, sequences + 1] first row of each sequence; the last entry is `rows`
  Tensor slots;         ///< i32 [1, sequences] slot of each sequence: where its recurrent states and rings are
  Tensor page_table;  ///< i32 [sequences, pages per sequence] KV page of tokens [i * page_size, (i + 1) * page_size) of
                      ///< a sequence
};

/// Keys and values of one attention layer. A row is Backend::cache_columns wide, head after head. Either `pages` pages
/// of `page_size` tokens, the rows of page p being p * page_size .. (p + 1) * page_size - 1; or, for layers with a
/// window, a ring of `ring` rows a slot: the token at position t of slot s lies in row s * ring + t % ring, over what
/// was there. A ring holds at least window - 1 tokens more than a step has rows.
struct KvLayer {
  Tensor keys;    ///< [pages * page_size or slots * ring, cache_columns], after norm and RoPE
  Tensor values;  ///< same shape
  std::int64_t page_size = 0;
  std::int64_t ring = 0;  ///< 0: pages
};

/// Recurrent state of one gated-delta-net layer, a row a slot. A fresh sequence starts from zeros: Backend::fill_zero
/// on its rows.
struct DeltaNetState {
  Tensor window;  ///< f32 [slots, (kernel - 1) * channels]: the last inputs of the convolution, oldest first
  Tensor state;   ///< f32 [slots, value_heads * key_dim * value_dim], S[head][key][value]
};

}  // namespace pergola
