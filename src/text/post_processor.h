#pragma once

#include <cstdint>
#include <vector>

#include "text/json_node.h"

namespace pergola {

/// The special tokens that a text gets around it.
struct SpecialFrame {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

/// Reads the "post_processor" of tokenizer.json for single texts: TemplateProcessing, ByteLevel (which only concerns
/// offsets), Sequence. Throws Error naming any other type.
SpecialFrame read_post_processor(const JsonNode& node);

}  // namespace pergola
