#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/json_node.h"
#include "text/merge_table.h"
#include "text/vocabulary.h"

namespace pergola {

/// A BPE model of tokenizer.json: a word starts as its characters, then the adjacent pair with the lowest merge rank is
/// merged, leftmost first, until none applies. A character that is no piece becomes its bytes' pieces "<0xNN>"
/// (byte_fallback), else the unknown token, else nothing.
class Bpe {
 public:
  /// Reads the "model" object. Throws Error for another model type, a merge whose parts or result are no pieces, and
  /// options that change results and are not supported (dropout, subword prefix and suffix).
  explicit Bpe(const JsonNode& model);

  /// Work space of encode, reused between words.
  struct Scratch {
    struct Symbol {
      std::int32_t id;
      std::int32_t previous;
      std::int32_t next;
    };
    struct Candidate {
      std::uint32_t rank;
      std::int32_t position;
      std::int32_t left;  // the ids at the time of the offer
      std::int32_t right;
      std::int32_t id;
    };
    std::vector<std::int32_t> ids;
    std::vector<MergeTable::Merge> merges;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  /// Appends the ids of `word` (valid UTF-8, less than 2^31 bytes) to `ids`.
  void encode(std::string_view word, std::vector<std::int32_t>& ids, Scratch& scratch) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  void read_merges(const JsonNode& merges);
  void characters_of(std::string_view word, std::vector<std::int32_t>& ids) const;
  bool append_bytes(std::string_view character, std::vector<std::int32_t>& ids) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_{};  // of "<0xNN>", -1 where there is none
  std::optional<std::int32_t> unknown_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

}  // namespace pergola
