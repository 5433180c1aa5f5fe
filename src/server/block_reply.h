#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/reply.h"

namespace pergola {

/// A part of an answer, in protocols whose answers are lists of parts.
struct AnswerBlock {
  enum class Kind : std::uint8_t { reasoning, text, tool_call };
  Kind kind = Kind::text;
  std::size_t index = 0;  ///< in the answer
  std::string id;
  std::string call_id;  ///< of a tool call
  std::string name;     ///< of the tool
  std::string text;     ///< all so far: reasoning, text, or arguments as JSON
};

/// A reply with one answer that consists of blocks; streamed or as a whole. A block ends where another kind begins.
class BlockReply : public Reply {
 public:
  void piece(std::size_t answer, const AnswerPiece& piece) final;
  void end_answer(std::size_t answer, const AnswerEnding& ending) final;

 protected:
  // What a stream sends; a reply as a whole leaves them empty.
  virtual void opened(AnswerBlock& block) = 0;
  virtual void grew(const AnswerBlock& block, const std::string& more) = 0;
  virtual void closed(const AnswerBlock& block) = 0;

  const std::vector<AnswerBlock>& blocks() const { return blocks_; }
  const AnswerEnding& ending() const { return ending_; }

 private:
  void open(AnswerBlock::Kind kind, const ToolCallPiece* call);
  void grow(AnswerBlock::Kind kind, const std::string& more);
  void close();

  std::vector<AnswerBlock> blocks_;
  bool is_open_ = false;
  std::int64_t open_call_ = -1;
  AnswerEnding ending_;
};

}  // namespace pergola
