#include "server/block_reply.h"

namespace pergola {

void BlockReply::close() {
  if (!is_open_) return;
  is_open_ = false;
  open_call_ = -1;
  closed(blocks_.back());
}

void BlockReply::open(AnswerBlock::Kind kind, const ToolCallPiece* call) {
  close();
  AnswerBlock block{.kind = kind, .index = blocks_.size()};
  if (call != nullptr) {
    block.call_id = call->id;
    block.name = call->name;
    open_call_ = call->index;
  }
  blocks_.push_back(std::move(block));
  is_open_ = true;
  opened(blocks_.back());
}

void BlockReply::grow(AnswerBlock::Kind kind, const std::string& more) {
  if (more.empty()) return;
  if (!is_open_ || blocks_.back().kind != kind) open(kind, nullptr);
  blocks_.back().text += more;
  grew(blocks_.back(), more);
}

void BlockReply::piece(std::size_t /*answer*/, const AnswerPiece& piece) {
  grow(AnswerBlock::Kind::reasoning, piece.reasoning);
  grow(AnswerBlock::Kind::text, piece.text);
  for (const ToolCallPiece& call : piece.tool_calls) {
    if (open_call_ != call.index) open(AnswerBlock::Kind::tool_call, &call);
    grow(AnswerBlock::Kind::tool_call, call.arguments);
  }
}

void BlockReply::end_answer(std::size_t /*answer*/, const AnswerEnding& ending) {
  close();
  ending_ = ending;
}

}  // namespace pergola
