#include "text/added_tokens.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace pergola {
namespace {

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  std::size_t at = utf8_previous(text, text.size());
  return is_word(utf8_next(text, at));
}

bool starts_with_word(std::string_view text) {
  std::size_t at = 0;
  return !text.empty() && is_word(utf8_next(text, at));
}

// Start of the white space that `text` ends with.
std::size_t trailing_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t previous = utf8_previous(text, end);
    std::size_t at = previous;
    if (!is_white_space(utf8_next(text, at))) break;
    end = previous;
  }
  return end;
}

// Length of the white space that `text` starts with.
std::size_t leading_space(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size(); end = at) {
    if (!is_white_space(utf8_next(text, at))) break;
  }
  return end;
}

AddedToken read_token(const JsonNode& node) {
  AddedToken token;
  token.id = static_cast<std::int32_t>(node.require("id").integer(0, max_token_ids - 1));
  token.content = node.require("content").string();
  token.single_word = node.get_bool("single_word", false);
  token.lstrip = node.get_bool("lstrip", false);
  token.rstrip = node.get_bool("rstrip", false);
  token.special = node.get_bool("special", false);
  token.normalized = node.get_bool("normalized", !token.special);
  if (token.content.empty()) fail(node.require("content").where(), "is empty");
  return token;
}

}  // namespace

void TokenTrie::insert(std::string_view text, std::size_t token) {
  if (text.empty()) return;
  first_bytes_[static_cast<unsigned char>(text[0])] = true;
  std::uint32_t node = 0;
  for (const char c : text) {
    const auto [place, is_new] = edges_.try_emplace(edge(node, c), static_cast<std::uint32_t>(tokens_.size()));
    if (is_new) tokens_.emplace_back();
    node = place->second;
  }
  tokens_[node] = token;
}

std::optional<TokenTrie::Match> TokenTrie::longest_at(std::string_view text, std::size_t at) const {
  std::optional<Match> longest;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto next = edges_.find(edge(node, text[i]));
    if (next == edges_.end()) break;
    node = next->second;
    if (tokens_[node]) longest = Match{*tokens_[node], i + 1 - at};
  }
  return longest;
}

std::size_t TokenTrie::candidate(std::string_view text, std::size_t at) const {
  if (edges_.empty()) return text.size();
  while (at < text.size() && !first_bytes_[static_cast<unsigned char>(text[at])]) ++at;
  return at;
}

AddedTokens::AddedTokens(const JsonNode& node, const Vocabulary& vocabulary, const Normalizer* normalizer) {
  for (const JsonNode& item : node.items()) add(read_token(item), item, vocabulary);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    AddedToken& token = tokens_[i];
    token.spelling = token.content;
    bool at_origin = true;
    if (token.normalized && normalizer != nullptr) normalizer->apply(token.spelling, at_origin);
    (token.normalized ? normalized_ : raw_).insert(token.spelling, i);
  }
}

void AddedTokens::add(AddedToken token, const JsonNode& node, const Vocabulary& vocabulary) {
  const auto own = vocabulary.id_of(token.content);
  if (own && *own != token.id)
    fail(node.where(), "gives {} id {}, the vocabulary gives it {}", in_quotes(token.content), token.id, *own);
  const auto piece = vocabulary.piece_of(token.id);
  if (piece && *piece != token.content)
    fail(node.where(), "gives {} id {}, which is {} in the vocabulary", in_quotes(token.content), token.id,
         in_quotes(*piece));
  if (find(token.id) != nullptr || find(token.content) != nullptr)
    fail(node.where(), "id {} or content {} is there twice", token.id, in_quotes(token.content));
  by_id_.emplace(token.id, tokens_.size());
  by_content_.emplace(token.content, tokens_.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

void AddedTokens::split(const TokenTrie& trie, std::string_view text, std::vector<Part>& parts) const {
  std::size_t done = 0;
  std::size_t space_end = 0;  // where the white space that was looked through last ends
  for (std::size_t at = trie.candidate(text, 0); at < text.size(); at = trie.candidate(text, at)) {
    const auto match = trie.longest_at(text, at);
    if (!match) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + match->length;
    at = end;
    const AddedToken& token = tokens_[match->token];
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip && done < begin) begin = done + trailing_space(text.substr(done, begin - done));
    if (token.rstrip) {
      if (end >= space_end) space_end = end + leading_space(text.substr(end));
      end = space_end;
    }
    if (done < begin) parts.push_back({-1, done, begin});
    parts.push_back({token.id, begin, end});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
}

}  // namespace pergola
