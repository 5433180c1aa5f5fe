#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/index_pool.h"

namespace pergola {

/// One text in the making: its tokens, how many of them the model has seen, and the cache it holds for them. Gives the
/// cache back when it dies.
class Sequence {
 public:
  /// Takes a slot. Throws Error when all are taken. `pool` outlives the sequence; `context` is the most tokens it may
  /// hold.
  Sequence(CachePool& pool, std::int64_t context);
  ~Sequence();
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  /// Adds tokens to be computed. Throws Error when the context would overflow. Ids were checked by the caller.
  void append(std::span<const std::int32_t> tokens);
  void append(std::int32_t token) { append(std::span(&token, 1)); }

  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::int64_t length() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t context() const { return context_; }
  /// Tokens whose keys, values and state are in the cache.
  std::int64_t computed() const { return computed_; }
  std::int64_t pending() const { return length() - computed_; }

  std::int32_t slot() const { return slot_; }
  std::span<const std::int32_t> pages() const { return pages_; }

  /// Starts a fresh sequence behind tokens that were computed before: shares the pages that hold them. `pages` are full
  /// and `tokens` fills them exactly; the caller appends the tokens themselves and copies the recurrent state.
  void adopt(std::span<const std::int32_t> pages, std::int64_t tokens);

  /// Takes pages so that `tokens` tokens have room; takes none and returns false when the pool has too few.
  [[nodiscard]] bool reserve(std::int64_t tokens);

  /// Notes that the next `rows` pending tokens were computed.
  void advance(std::int64_t rows);

 private:
  void release();

  CachePool* pool_;
  std::int64_t context_;
  std::int32_t slot_;
  std::int64_t computed_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> pages_;
};

}  // namespace pergola
