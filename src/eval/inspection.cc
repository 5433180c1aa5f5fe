#include "eval/inspection.h"

#include <algorithm>

#include "base/error.h"
#include "format/generation_config.h"

namespace pergola {
namespace {

/// Runs `check` and keeps what it throws as a problem.
template <typename Check>
void note_problem(std::vector<std::string>& problems, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
}

}  // namespace

Inspection inspect(const std::filesystem::path& folder, const EngineOptions& options) {
  Checkpoint checkpoint(folder);
  Inspection inspection{.checkpoint = summarize(checkpoint)};
  note_problem(inspection.problems, [&] {
    if (!std::filesystem::exists(folder / "tokenizer.json")) {
      fail({.file = (folder / "tokenizer.json").string()},
           "the file is missing, so that text can neither be read nor written");
    }
  });
  note_problem(inspection.problems, [&] { load_generation_config(folder, checkpoint.config()); });
  note_problem(inspection.problems, [&] {
    OpenedModel opened = open_model(std::move(checkpoint), options);
    inspection.model = std::move(opened.info);
    inspection.memory = std::move(opened.memory);
    require_fit(*inspection.memory);
  });
  for (const std::string& sentence : inspection.checkpoint.problems) {
    const bool stops_it =
        std::find(inspection.problems.begin(), inspection.problems.end(), sentence) != inspection.problems.end();
    if (!stops_it) inspection.notes.push_back(sentence);
  }
  return inspection;
}

}  // namespace pergola
