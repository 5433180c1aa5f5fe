#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_node.h"

namespace pergola {

/// One step from token pieces to text. Stages are linked: each passes what it makes on to the next. A stage keeps what
/// it needs of the pieces before, so that the same code decodes a whole sequence and a stream.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;

  /// A stage of the same kind that has seen nothing.
  virtual std::unique_ptr<DecodeStage> fresh() const = 0;
  /// Takes the next piece.
  virtual void push(std::string_view piece) = 0;
  /// No more pieces come: passes on what was held back.
  virtual void finish() {}
  /// Whether all that this stage passes on belongs to one single piece.
  virtual bool fuses() const { return false; }
  /// Called before the first push: pieces must leave as soon as they can, see ByteFallback.
  virtual void set_streaming() {}

  void set_next(DecodeStage* next) { next_ = next; }

 protected:
  DecodeStage* next_ = nullptr;
};

/// The "decoder" of tokenizer.json: ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence, or none (pieces
/// joined by spaces).
class Decoder {
 public:
  /// Pieces joined by spaces: what a tokenizer.json without a decoder asks for.
  Decoder();
  /// Throws Error naming a type or an order of types that is not supported.
  explicit Decoder(const JsonNode& node);

  /// Decodes one sequence of pieces. Movable, not copyable.
  class Run {
   public:
    /// `streaming`: text leaves as soon as it is certain to be valid UTF-8.
    Run(const Decoder& decoder, bool streaming);
    ~Run();
    Run(Run&&) noexcept;
    Run& operator=(Run&&) noexcept;

    void push(std::string_view piece);
    void finish();
    /// The text since the start, or since it was last cleared by the caller.
    std::string& text();

   private:
    std::vector<std::unique_ptr<DecodeStage>> stages_;
  };

 private:
  void add(const JsonNode& node);

  std::vector<std::unique_ptr<DecodeStage>> stages_;
  bool fused_ = false;
};

}  // namespace pergola
