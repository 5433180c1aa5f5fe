#include "text/pattern.h"

#include "text/utf8.h"

namespace pergola {

Pattern::Pattern(const JsonNode& node) {
  if (node.has("String")) {
    literal_ = node.require("String").string();
  } else if (node.has("Regex")) {
    const JsonNode expression = node.require("Regex");
    regex_.emplace(expression.string(), expression.where());
  } else {
    fail(node.where(), "must have a member \"String\" or \"Regex\"");
  }
}

void Pattern::find_all(std::string_view text, std::vector<Span>& matches) const {
  if (regex_) {
    regex_->find_all(text, matches);
  } else if (!literal_.empty()) {
    for (std::size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      matches.push_back({at, at + literal_.size()});
    }
  }
}

void Pattern::replace_all(std::string_view text, std::string_view content, std::string& out) const {
  std::vector<Span> matches;
  find_all(text, matches);
  std::size_t done = 0;
  for (const Span& match : matches) {
    out += text.substr(done, match.begin - done);
    out += content;
    done = match.end;
  }
  out += text.substr(done);
}

bool Pattern::is_single_character() const {
  return !regex_ && !literal_.empty() && utf8_length(literal_[0]) == literal_.size();
}

}  // namespace pergola
