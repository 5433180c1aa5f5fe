#include "eval/window.h"

#include <algorithm>
#include <vector>

namespace pergola {

void run_window(Engine& engine, std::span<const std::int32_t> tokens, const OnLogits& on_logits) {
  engine.check_ids(tokens);
  Sequence sequence = engine.start();
  sequence.append(tokens);
  std::vector<float> logits(static_cast<std::size_t>(engine.info().vocab_size));
  const std::int64_t chunk = std::min(engine.max_rows(), engine.memory().logit_rows);
  while (sequence.pending() > 0) {
    const std::int64_t first = sequence.computed();
    const std::int64_t rows = std::min(chunk, sequence.pending());
    const StepPart part{&sequence, rows, rows};
    engine.step({&part, 1});
    for (std::int64_t row = 0; row < rows; ++row) {
      engine.read_logits(row, logits);
      on_logits(first + row, logits);
    }
  }
}

}  // namespace pergola
