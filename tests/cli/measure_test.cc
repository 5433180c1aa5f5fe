#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/checkpoint_writer.h"

namespace pergola {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kStory;
using testing::Outcome;
using testing::pergola;
using testing::TempFolder;
using testing::TensorWriter;
using testing::write_text;

/// The command on the bundled model and the reference backend.
Outcome story(const std::string& command, std::vector<std::string> more, const testing::RunOptions& options = {}) {
  std::vector<std::string> all{command, kStory, "--backend", "reference"};
  all.insert(all.end(), more.begin(), more.end());
  return pergola(all, options);
}

json json_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json parsed = json::parse(outcome.out, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << outcome.out;
  return parsed;
}

/// A file of two windows of eight tokens.
void write_tokens(const std::filesystem::path& path) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 16; ++i) ids.push_back(100 + 37 * i);
  TensorWriter writer;
  writer.add("input_ids", DType::i32, {2, 8}, testing::bytes_of(ids));
  writer.write(path);
}

const std::string kText =
    "The house stood on a hill above the river, and nobody had lived in it for many years. In the summer the children "
    "of the village climbed the wall "
    "and ate the apples that grew in the garden. An old man watched them from the road and said nothing.";

TEST(Perplexity, JsonFields) {
  const TempFolder folder;
  write_text(folder / "text.txt", kText);
  const json result =
      json_of(story("perplexity", {"--text", folder / "text.txt", "--context", "16", "--chunks", "2", "--json"}));
  EXPECT_EQ(result.at("tokens_scored"), 30);
  EXPECT_GT(result.at("perplexity").get<double>(), 1);
  EXPECT_LT(result.at("perplexity").get<double>(), 4096);
  EXPECT_GT(result.at("stderr").get<double>(), 0);
  EXPECT_GE(result.at("seconds").get<double>(), 0);
}

TEST(Perplexity, BadInputs) {
  const TempFolder folder;
  write_text(folder / "text.txt", kText);
  const Outcome too_short = story("perplexity", {"--text", folder / "text.txt", "--context", "1024"});
  EXPECT_EQ(too_short.code, 1);
  EXPECT_THAT(too_short.err, HasSubstr("fewer than one window of 1024"));
  EXPECT_EQ(story("perplexity", {"--text", folder / "none.txt"}).code, 1);
  EXPECT_EQ(story("perplexity", {"--text", folder.path()}).code, 1);
  EXPECT_EQ(story("perplexity", {}).code, 2);
}

TEST(LogitsAndCompare, AModelAgreesWithItself) {
  const TempFolder folder;
  write_tokens(folder / "tokens.safetensors");
  const Outcome written =
      story("logits", {"--tokens", folder / "tokens.safetensors", "-o", folder / "logits.safetensors"});
  ASSERT_EQ(written.code, 0) << written.err;
  const json result = json_of(story("compare", {"--reference", folder / "logits.safetensors", "--json"}));
  EXPECT_LT(std::abs(result.at("kl_mean").get<double>()), 1e-9);
  EXPECT_LT(std::abs(result.at("kl_median").get<double>()), 1e-9);
  EXPECT_LT(std::abs(result.at("kl_p99").get<double>()), 1e-9);
  EXPECT_EQ(result.at("kl_ci").size(), 2u);
  EXPECT_EQ(result.at("top1"), 1.0);
  EXPECT_EQ(result.at("positions"), 16);
}

TEST(LogitsAndCompare, FullDiskLeavesNothing) {
  const TempFolder folder;
  write_tokens(folder / "tokens.safetensors");
  const Outcome outcome =
      story("logits", {"--tokens", folder / "tokens.safetensors", "-o", folder / "logits.safetensors"},
            {.file_size_limit = 100'000});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("logits.safetensors"));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 1);
}

TEST(LogitsAndCompare, FilesThatDoNotSuit) {
  const TempFolder folder;
  TensorWriter ids_beyond;
  ids_beyond.add("input_ids", DType::i32, {1, 2}, testing::bytes_of(std::vector<std::int32_t>{1, 4096}));
  ids_beyond.write(folder / "beyond.safetensors");
  const Outcome beyond = story("logits", {"--tokens", folder / "beyond.safetensors", "-o", folder / "out"});
  EXPECT_EQ(beyond.code, 1);
  EXPECT_THAT(beyond.err, HasSubstr("4096"));

  TensorWriter narrow;
  narrow.add("input_ids", DType::i32, {1, 2}, testing::bytes_of(std::vector<std::int32_t>{1, 2}));
  narrow.add_floats("logits", {1, 2, 8}, std::vector<float>(16));
  narrow.write(folder / "narrow.safetensors");
  const Outcome other_vocabulary = story("compare", {"--reference", folder / "narrow.safetensors"});
  EXPECT_EQ(other_vocabulary.code, 1);
  EXPECT_THAT(other_vocabulary.err, AllOf(HasSubstr("8 columns"), HasSubstr("4096")));

  write_text(folder / "text.txt", "not a safetensors file");
  EXPECT_EQ(story("logits", {"--tokens", folder / "text.txt", "-o", folder / "out"}).code, 1);
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(Bench, JsonFieldsOfEveryTest) {
  const json result = json_of(story("bench", {"-p", "8,16", "-n", "3", "--depth", "0,8", "-r", "2", "--json"}));
  EXPECT_EQ(result.at("backend"), "reference");
  ASSERT_EQ(result.at("tests").size(), 6u);
  for (const json& test : result.at("tests")) {
    EXPECT_GT(test.at("tokens_per_second").at("median").get<double>(), 0);
    EXPECT_GT(test.at("bandwidth").at("median").get<double>(), 0);
    EXPECT_GT(test.at("bytes_per_token").get<double>(), 0);
    EXPECT_GT(test.at("bandwidth_share").get<double>(), 0);
  }
  EXPECT_EQ(result.at("tests")[2].at("test"), "decode");
  EXPECT_EQ(result.at("tests")[5].at("depth"), 8);
}

TEST(Bench, TablesInThreeForms) {
  const std::vector<std::string> small{"-p", "4", "-n", "0", "-r", "1"};
  const auto with = [&](const std::string& form) {
    std::vector<std::string> all = small;
    all.push_back(form);
    return story("bench", all).out;
  };
  EXPECT_THAT(with("--csv"), AllOf(HasSubstr("test,tokens/s,"), HasSubstr("\nprefill 4,")));
  EXPECT_THAT(with("--markdown"), AllOf(HasSubstr("| test"), HasSubstr("|--"), HasSubstr("| prefill 4")));
  EXPECT_THAT(story("bench", small).out, HasSubstr("prefill 4"));
  EXPECT_EQ(story("bench", {"--csv", "--json"}).code, 2);
}

TEST(Inspect, ReportAndJson) {
  const Outcome report = pergola({"inspect", kStory, "--backend", "reference"});
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.out, AllOf(HasSubstr("Qwen3_5MoeForCausalLM"), HasSubstr("4.00 bits per weight"),
                                HasSubstr("head 6"), HasSubstr("mul1"), HasSubstr("KV cache"), HasSubstr("total")));
  const json result = json_of(pergola({"inspect", kStory, "--backend", "reference", "--json"}));
  EXPECT_EQ(result.at("bits_per_weight"), 4.0);
  EXPECT_EQ(result.at("head_bits"), 6);
  EXPECT_EQ(result.at("model").at("layers"), 8);
  EXPECT_EQ(result.at("memory").at("context"), 8192);
  EXPECT_TRUE(result.at("memory").at("fits").get<bool>());
  EXPECT_TRUE(result.at("problems").empty()) << result.at("problems");
}

TEST(Inspect, ProblemsAreListedAndTheExitCodeSaysSo) {
  const TempFolder folder;
  std::filesystem::copy(kStory, folder / "model");
  std::filesystem::remove(folder / "model/tokenizer.json");
  const Outcome outcome = pergola({"inspect", folder / "model", "--backend", "reference"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("problem: "), HasSubstr("tokenizer.json")));
}

TEST(Devices, ListsTheReference) {
  const json result = json_of(pergola({"devices", "--json", "--no-measure"}));
  bool found = false;
  for (const json& device : result)
    found = found || (device.at("backend") == "reference" && device.at("available").get<bool>());
  EXPECT_TRUE(found) << result;
}

TEST(Verify, EveryKernelAndOperationOfThisMachine) {
  const json result = json_of(pergola({"verify", kStory, "-n", "16", "--json"}));
  EXPECT_EQ(result.at("misses"), 0);
  EXPECT_GT(result.at("kernels").size(), 100u);
  EXPECT_GT(result.at("operations").size(), 50u);
  EXPECT_TRUE(result.at("model").at("passed").get<bool>());
  const json& kernel = result.at("kernels")[0];
  for (const std::string field :
       {"isa", "kernel", "weight", "bits", "rows", "error", "tolerance", "weights_per_second", "passed"}) {
    EXPECT_TRUE(kernel.contains(field)) << field;
  }
}

TEST(Verify, TableOfTheReference) {
  const Outcome outcome = pergola({"verify", "--backend", "reference"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("delta_net"), HasSubstr("all within tolerance")));
}

TEST(Interrupt, EndsAMeasurementWithoutAResult) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += kText;
  write_text(folder / "text.txt", text);
  // The signal is sent at once: an empty text is always there.
  const Outcome outcome =
      story("perplexity", {"--text", folder / "text.txt", "--context", "16", "--json"}, {.signals = {{"", SIGINT}}});
  EXPECT_TRUE(outcome.code == 130 || outcome.signal == SIGINT) << outcome.code;
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace pergola
