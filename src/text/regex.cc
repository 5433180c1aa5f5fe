#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "text/regex_syntax.h"
#include "text/unicode_additions.h"
#include "text/utf8.h"

namespace pergola {
namespace {

// Steps that one match may take: some to begin with and some for each byte, because going through a long run of spaces
// and back is a step each way.
constexpr std::uint64_t match_steps = 1'000'000;
constexpr std::uint64_t match_steps_per_byte = 16;
constexpr std::size_t longest_pattern = 16 * 1024;  // those in use have a few hundred bytes
constexpr std::size_t jit_stack_least = 32 * 1024;
constexpr std::size_t jit_stack_most = 64 * 1024 * 1024;  // reserved, used when a match needs it

template <auto release>
struct Release {
  template <typename T>
  void operator()(T* object) const {
    release(object);
  }
};

// What matching needs besides the program; one a thread, so that a match allocates nothing.
struct MatchSpace {
  std::unique_ptr<pcre2_match_data, Release<pcre2_match_data_free>> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Release<pcre2_match_context_free>> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, Release<pcre2_jit_stack_free>> stack{
      pcre2_jit_stack_create(jit_stack_least, jit_stack_most, nullptr)};

  MatchSpace() {
    if (!data || !context || !stack) throw std::bad_alloc();
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }

  static MatchSpace& of_thread() {
    thread_local MatchSpace space;
    return space;
  }
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Program {
  std::unique_ptr<pcre2_code, Release<pcre2_code_free>> code;
  Where where;
};

Regex::Regex(std::string_view pattern, const Where& where) {
  if (pattern.size() > longest_pattern) {
    fail(where, "regular expression has {} bytes, more than {}", pattern.size(), longest_pattern);
  }
  const std::string translated = translate_regex(pattern, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto program = std::make_shared<Program>();
  program->where = where;
  program->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                    nullptr));
  if (!program->code) fail(where, "regular expression {} does not compile: {}", in_quotes(pattern), message_of(error));
  pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE);  // where it is not available the interpreter runs
  program_ = std::move(program);
}

void Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  std::string older;
  if (has_additions(text)) text = older = without_additions(text);
  MatchSpace& space = MatchSpace::of_thread();
  const std::uint64_t steps = match_steps + match_steps_per_byte * text.size();
  pcre2_set_match_limit(space.context.get(), static_cast<std::uint32_t>(std::min<std::uint64_t>(steps, UINT32_MAX)));
  const pcre2_code* code = program_->code.get();
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(space.data.get());
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.empty() ? "" : text.data());
  bool matched_before = false;
  std::size_t previous_end = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const int result =
        pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, space.data.get(), space.context.get());
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0)
      fail(program_->where, "regular expression gives up on a text of {} bytes: {}", text.size(), message_of(result));
    const Span match = {offsets[0], offsets[1]};
    if (match.begin == match.end && matched_before && match.end == previous_end) {
      // An empty match right behind the last one: go on with the next character.
      at = match.end + (match.end < text.size() ? utf8_length(text[match.end]) : 1);
      continue;
    }
    matches.push_back(match);
    matched_before = true;
    at = previous_end = match.end;
  }
}

}  // namespace pergola
