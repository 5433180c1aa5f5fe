#include "text/post_processor.h"

#include "text/utf8.h"
#include "text/vocabulary.h"

namespace pergola {
namespace {

SpecialFrame read_template(const JsonNode& node) {
  const JsonNode specials = node.require("special_tokens");
  SpecialFrame frame;
  int texts = 0;
  for (const JsonNode& part : node.require("single").items()) {
    if (part.has("Sequence")) {
      ++texts;
      continue;
    }
    const std::string& name = part.require("SpecialToken").require("id").string();
    for (const JsonNode& id : specials.require(name).require("ids").items()) {
      (texts == 0 ? frame.before : frame.after).push_back(static_cast<std::int32_t>(id.integer(0, max_token_ids - 1)));
    }
  }
  if (texts != 1) fail(node.require("single").where(), "must contain the text once, contains it {} times", texts);
  return frame;
}

}  // namespace

SpecialFrame read_post_processor(const JsonNode& node) {
  const std::string& type = node.require("type").string();
  if (type == "TemplateProcessing") return read_template(node);
  if (type == "ByteLevel") return {};
  if (type == "Sequence") {
    SpecialFrame all;
    for (const JsonNode& part : node.require("processors").items()) {
      const SpecialFrame outer = read_post_processor(part);
      all.before.insert(all.before.begin(), outer.before.begin(), outer.before.end());
      all.after.insert(all.after.end(), outer.after.begin(), outer.after.end());
    }
    return all;
  }
  fail(node.require("type").where(), "post-processor {} is not supported", in_quotes(type));
}

}  // namespace pergola
