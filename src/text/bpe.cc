#include "text/bpe.h"

#include <algorithm>

#include "text/utf8.h"

namespace pergola {
namespace {

// Up to this many symbols a scan over all pairs beats the heap.
constexpr std::size_t short_word = 48;

void refuse_options(const JsonNode& model) {
  for (const char* option : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.get_string(option, "").empty()) fail(model.require(option).where(), "is not supported");
  }
  if (model.has("dropout") && model.require("dropout").json() != 0)
    fail(model.require("dropout").where(), "is not supported");
}

const JsonNode& require_bpe(const JsonNode& model) {
  // Files of old versions leave the type out; only BPE has both members.
  const std::string type = model.has("type") || !model.has("merges") ? model.require("type").string() : "BPE";
  if (type != "BPE") fail(model.require("type").where(), "tokenizer model \"{}\" is not supported, only BPE is", type);
  return model;
}

std::pair<std::string, std::string> merge_parts(const JsonNode& merge) {
  if (merge.is_array()) {
    const std::vector<JsonNode> parts = merge.items();
    if (parts.size() != 2) fail(merge.where(), "a merge must have 2 parts, has {}", parts.size());
    return {parts[0].string(), parts[1].string()};
  }
  const std::string& text = merge.string();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    fail(merge.where(), "merge \"{}\" must be two pieces with one space between", text);
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

Bpe::Bpe(const JsonNode& model)
    : vocabulary_(require_bpe(model).require("vocab")),
      merges_(model.require("merges").json().size()),
      fuse_unknown_(model.get_bool("fuse_unk", false)),
      byte_fallback_(model.get_bool("byte_fallback", false)),
      ignore_merges_(model.get_bool("ignore_merges", false)) {
  refuse_options(model);
  read_merges(model.require("merges"));
  if (model.has("unk_token")) {
    const JsonNode unknown = model.require("unk_token");
    unknown_ = vocabulary_.id_of(unknown.string());
    if (!unknown_) fail(unknown.where(), "piece \"{}\" is not in the vocabulary", unknown.string());
  }
  for (std::size_t byte = 0; byte < 256; ++byte)
    byte_ids_[byte] = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
}

void Bpe::read_merges(const JsonNode& merges) {
  std::uint32_t rank = 0;
  for (const JsonNode& merge : merges.items()) {
    if (merge.is_string() && merge.string().starts_with("#version")) continue;
    const auto [left, right] = merge_parts(merge);
    const auto require_piece = [&](const std::string& piece) {
      const auto id = vocabulary_.id_of(piece);
      if (!id) fail(merge.where(), "piece \"{}\" is not in the vocabulary", piece);
      return *id;
    };
    // An empty part would make a merge that yields its own other part: a cycle.
    if (left.empty() || right.empty()) fail(merge.where(), "a part of a merge is empty");
    merges_.insert(require_piece(left), require_piece(right), {rank++, require_piece(left + right)});
  }
}

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& ids, Scratch& scratch) const {
  if (ignore_merges_) {
    if (const auto id = vocabulary_.id_of(word)) {
      ids.push_back(*id);
      return;
    }
  }
  scratch.ids.clear();
  characters_of(word, scratch.ids);
  if (scratch.ids.size() <= short_word) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
}

// An unknown character is held back until the next known one, so that neighbours can be fused; bytes of a fallback pass
// it by, as they do in the Hugging Face implementation.
void Bpe::characters_of(std::string_view word, std::vector<std::int32_t>& ids) const {
  bool unknown_waits = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t start = at;
    const char32_t code_point = utf8_next(word, at);
    const std::string_view character = word.substr(start, at - start);
    const std::int32_t id = vocabulary_.id_of_character(code_point, character);
    if (id >= 0) {
      if (unknown_waits) ids.push_back(*unknown_);
      unknown_waits = false;
      ids.push_back(id);
    } else if (!append_bytes(character, ids) && unknown_) {
      if (unknown_waits && !fuse_unknown_) ids.push_back(*unknown_);
      unknown_waits = true;
    }
  }
  if (unknown_waits) ids.push_back(*unknown_);
}

bool Bpe::append_bytes(std::string_view character, std::vector<std::int32_t>& ids) const {
  const auto id_of = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (!byte_fallback_ || std::ranges::any_of(character, [&](char c) { return id_of(c) < 0; })) return false;
  for (const char c : character) ids.push_back(id_of(c));
  return true;
}

void Bpe::merge_short(Scratch& scratch) const {
  std::vector<std::int32_t>& ids = scratch.ids;
  std::vector<std::uint32_t>& ranks = scratch.ranks;  // ranks[i] is that of the pair (i, i + 1)
  const auto rank_at = [&](std::size_t i) { return merges_.find(ids[i], ids[i + 1]).rank; };
  ranks.clear();
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) ranks.push_back(rank_at(i));
  while (!ranks.empty()) {
    const auto best = std::ranges::min_element(ranks);
    if (*best == MergeTable::no_rank) return;
    const auto i = static_cast<std::size_t>(best - ranks.begin());
    ids[i] = merges_.find(ids[i], ids[i + 1]).id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(best);
    if (i < ranks.size()) ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
}

void Bpe::merge_long(Scratch& scratch) const {
  using Symbol = Scratch::Symbol;
  using Candidate = Scratch::Candidate;
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Candidate>& heap = scratch.heap;
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto at = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  const auto candidate_at = [&](std::int32_t i) {
    const MergeTable::Merge merge = merges_.find(at(i).id, at(at(i).next).id);
    return Candidate{merge.rank, i, merge.id};
  };
  const auto offer = [&](std::int32_t i) {
    if (i < 0 || at(i).next < 0) return;
    const Candidate candidate = candidate_at(i);
    if (candidate.rank == MergeTable::no_rank) return;
    heap.push_back(candidate);
    std::ranges::push_heap(heap, later);
  };

  const auto count = static_cast<std::int32_t>(scratch.ids.size());
  symbols.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    symbols.push_back({scratch.ids[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  heap.clear();
  for (std::int32_t i = 0; i + 1 < count; ++i) {
    const Candidate candidate = candidate_at(i);
    if (candidate.rank != MergeTable::no_rank) heap.push_back(candidate);
  }
  std::ranges::make_heap(heap, later);

  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& symbol = at(best.position);
    // The pair may have changed since it was offered.
    if (symbol.id < 0 || symbol.next < 0 || candidate_at(best.position).id != best.id) continue;
    Symbol& eaten = at(symbol.next);
    symbol.id = best.id;
    symbol.next = eaten.next;
    eaten.id = -1;
    if (symbol.next >= 0) at(symbol.next).previous = best.position;
    offer(symbol.previous);
    offer(best.position);
  }
  scratch.ids.clear();
  for (std::int32_t i = count > 0 ? 0 : -1; i >= 0; i = at(i).next) scratch.ids.push_back(at(i).id);
}

}  // namespace pergola
