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
  if (type != "BPE")
    fail(model.require("type").where(), "tokenizer model {} is not supported, only BPE is", in_quotes(type));
  return model;
}

struct MergeParts {
  std::string_view left;
  std::string_view right;
};

// Splits a merge: ["a","b"] or "a b". Its place is only spelled out for an error: there are a quarter of a million of
// them.
MergeParts merge_parts(const JsonNode& merges, std::size_t index) {
  const nlohmann::json& merge = merges.json()[index];
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  if (merge.is_array()) fail(merges.at(index).where(), "a merge must be 2 strings");
  const std::string_view text = merges.at(index).string();
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    fail(merges.at(index).where(), "merge {} must be two pieces with one space between", in_quotes(text));
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

// The first line of an old merges file.
bool is_version(const nlohmann::json& merge) {
  return merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version");
}

}  // namespace

Bpe::Bpe(const JsonNode& model)
    : vocabulary_(require_bpe(model).require("vocab")),
      merges_(model.require("merges").size()),
      fuse_unknown_(model.get_bool("fuse_unk", false)),
      byte_fallback_(model.get_bool("byte_fallback", false)),
      ignore_merges_(model.get_bool("ignore_merges", false)) {
  refuse_options(model);
  read_merges(model.require("merges"));
  if (model.has("unk_token")) {
    const JsonNode unknown = model.require("unk_token");
    unknown_ = vocabulary_.id_of(unknown.string());
    if (!unknown_) fail(unknown.where(), "piece {} is not in the vocabulary", in_quotes(unknown.string()));
  }
  for (std::size_t byte = 0; byte < 256; ++byte)
    byte_ids_[byte] = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
}

void Bpe::read_merges(const JsonNode& merges) {
  std::uint32_t rank = 0;
  std::string whole;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    if (is_version(merges.json()[i])) continue;
    const auto [left, right] = merge_parts(merges, i);
    const auto require_piece = [&](std::string_view piece) {
      const auto id = vocabulary_.id_of(piece);
      if (!id) fail(merges.at(i).where(), "piece {} is not in the vocabulary", in_quotes(piece));
      return *id;
    };
    // An empty part would make a merge that yields its own other part: a cycle.
    if (left.empty() || right.empty()) fail(merges.at(i).where(), "a part of a merge is empty");
    const std::int32_t left_id = require_piece(left);
    const std::int32_t right_id = require_piece(right);
    whole.assign(left).append(right);
    merges_.insert(left_id, right_id, {rank++, require_piece(whole)});
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
  std::vector<MergeTable::Merge>& merges = scratch.merges;  // merges[i] is that of the pair (i, i + 1)
  const auto merge_at = [&](std::size_t i) { return merges_.find(ids[i], ids[i + 1]); };
  merges.clear();
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) merges.push_back(merge_at(i));
  while (!merges.empty()) {
    const auto best = std::ranges::min_element(merges, {}, &MergeTable::Merge::rank);
    if (best->rank == MergeTable::no_rank) return;
    const auto i = static_cast<std::size_t>(best - merges.begin());
    ids[i] = best->id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    merges.erase(best);
    if (i < merges.size()) merges[i] = merge_at(i);
    if (i > 0) merges[i - 1] = merge_at(i - 1);
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
    const std::int32_t left = at(i).id;
    const std::int32_t right = at(at(i).next).id;
    const MergeTable::Merge merge = merges_.find(left, right);
    return Candidate{merge.rank, i, left, right, merge.id};
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
    if (symbol.id != best.left || symbol.next < 0 || at(symbol.next).id != best.right) continue;
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
