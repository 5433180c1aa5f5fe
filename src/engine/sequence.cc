#include "engine/sequence.h"

#include <cassert>
#include <utility>

#include "base/error.h"

namespace pergola {
namespace {

std::int32_t take_slot(CachePool& pool) {
  if (pool.slots.available() == 0) {
    fail({.field = "--max-sequences"}, "all {} sequences are in use", pool.slots.size());
  }
  return pool.slots.take();
}

}  // namespace

Sequence::Sequence(CachePool& pool, std::int64_t context) : pool_(&pool), context_(context), slot_(take_slot(pool)) {
  tokens_.reserve(static_cast<std::size_t>(context));  // a decode step allocates nothing
  pages_.reserve(static_cast<std::size_t>((context + pool.page_size - 1) / pool.page_size));
}

Sequence::~Sequence() {
  release();
}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      context_(other.context_),
      slot_(other.slot_),
      computed_(other.computed_),
      tokens_(std::move(other.tokens_)),
      pages_(std::move(other.pages_)) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    context_ = other.context_;
    slot_ = other.slot_;
    computed_ = other.computed_;
    tokens_ = std::move(other.tokens_);
    pages_ = std::move(other.pages_);
  }
  return *this;
}

void Sequence::release() {
  if (pool_ == nullptr) return;
  for (const std::int32_t page : pages_) pool_->pages.give_back(page);
  pool_->slots.give_back(slot_);
  pool_ = nullptr;
}

void Sequence::append(std::span<const std::int32_t> tokens) {
  const std::int64_t wanted = length() + static_cast<std::int64_t>(tokens.size());
  if (wanted > context_) fail({.field = "--context"}, "{} tokens do not fit a context of {}", wanted, context_);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void Sequence::adopt(std::span<const std::int32_t> pages, std::int64_t tokens) {
  assert(pages_.empty() && computed_ == 0 && static_cast<std::int64_t>(pages.size()) * pool_->page_size == tokens);
  for (const std::int32_t page : pages) pool_->pages.share(page);
  pages_.assign(pages.begin(), pages.end());
  computed_ = tokens;
}

bool Sequence::reserve(std::int64_t tokens) {
  assert(tokens <= context_);
  const std::int64_t wanted = (tokens + pool_->page_size - 1) / pool_->page_size;
  const std::int64_t missing = wanted - static_cast<std::int64_t>(pages_.size());
  if (missing > pool_->pages.available()) return false;
  for (std::int64_t i = 0; i < missing; ++i) pages_.push_back(pool_->pages.take());
  return true;
}

void Sequence::advance(std::int64_t rows) {
  assert(rows >= 0 && rows <= pending());
  computed_ += rows;
}

}  // namespace pergola
