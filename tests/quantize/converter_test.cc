#include "quantize/converter.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "base/error.h"
#include "base/mapped_file.h"
#include "format/safetensors_writer.h"
#include "model/architectures.h"
#include "quantize/allocation.h"
#include "quantize/linear_tasks.h"
#include "support/checkpoint_writer.h"
#include "support/tiny_conversion.h"
#include "trellis/decode.h"

namespace pergola {
namespace {

using ::testing::AllOf;
using testing::contents;
using testing::convert;
using testing::convertible;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::TinyQwen;

/// A folder with a source model in it.
struct Source {
  explicit Source(const TinyQwen& tiny = convertible()) {
    std::filesystem::create_directory(folder / "source");
    tiny.write(folder / "source");
    checkpoint = std::make_unique<Checkpoint>(folder / "source");
  }
  std::filesystem::path operator/(const char* name) const { return folder / name; }

  TempFolder folder;
  std::unique_ptr<Checkpoint> checkpoint;
};

/// |stored - source|^2 / |source|^2 of one linear in its logical widths.
double weight_error(const LinearView& stored, const LinearView& source) {
  const TrellisView& trellis = *stored.trellis();
  const std::vector<double> weight = effective_weight(trellis);
  double error = 0, power = 0;
  for (std::int64_t j = 0; j < source.out_features; ++j) {
    for (std::int64_t i = 0; i < source.in_features; ++i) {
      const double wanted = double{dense_element(*source.dense(), j * source.in_features + i)};
      const double got = weight[static_cast<std::size_t>(j * trellis.in_features + i)];
      error += (wanted - got) * (wanted - got);
      power += wanted * wanted;
    }
  }
  return error / power;
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Converter, EveryLinearIsCloseAndEverythingElseIsKept) {
  TinyQwen tiny = convertible();
  tiny.extras = true;
  const Source source(tiny);
  QuantizeOptions options;
  options.bits = 6;
  options.allocation = Allocation::published;
  const QuantizeReport report = convert(*source.checkpoint, source / "made", options);
  EXPECT_DOUBLE_EQ(report.bits, 6);

  const Checkpoint made(source / "made");
  ModelBlueprint before = read_blueprint(*source.checkpoint), after = read_blueprint(made);
  std::size_t linears = 1;
  for (std::size_t layer = 0; layer < before.layers.size(); ++layer) {
    const auto dense = linear_tasks(before.layers[layer]), stored = linear_tasks(after.layers[layer]);
    ASSERT_EQ(dense.size(), stored.size());
    for (std::size_t i = 0; i < dense.size(); ++i) {
      ASSERT_NE(stored[i].view->trellis(), nullptr) << stored[i].key;
      EXPECT_EQ(stored[i].key, dense[i].key);
      EXPECT_EQ(stored[i].view->trellis()->bits, 6);
      EXPECT_LT(weight_error(*stored[i].view, *dense[i].view), 3e-3) << stored[i].key;
      ++linears;
    }
  }
  EXPECT_LT(weight_error(after.head, before.head), 3e-3);
  EXPECT_EQ(report.linears.size(), linears + 1);  // mtp.fc

  for (const char* name : {"model.visual.patch_embed.proj.weight", "model.language_model.layers.0.linear_attn.A_log"}) {
    EXPECT_EQ(made.require(name).dtype, DType::f32) << name;
    EXPECT_TRUE(std::ranges::equal(made.require(name).bytes, source.checkpoint->require(name).bytes)) << name;
  }
  for (const char* name :
       {"model.language_model.layers.0.linear_attn.in_proj_a.weight", "model.language_model.layers.0.mlp.gate.weight",
        "model.language_model.embed_tokens.weight", "model.language_model.norm.weight"}) {
    EXPECT_EQ(made.require(name).dtype, DType::f16) << name;
  }
  EXPECT_EQ(made.find("model.language_model.layers.0.mlp.experts.gate_up_proj"), nullptr);
  EXPECT_NE(made.find("mtp.fc.trellis"), nullptr);
  const auto config = nlohmann::json::parse(contents(source / "made").at("quantization_config.json"));
  EXPECT_EQ(config.at("quant_method"), "exl3");
  EXPECT_EQ(config.at("codebook"), "mul1");
  const auto& leaf = config.at("tensor_storage").at("lm_head");
  EXPECT_EQ(leaf.at("bits_per_weight"), 6);
  EXPECT_EQ(leaf.at("mul1_multiplier"), 2212286765u);
  EXPECT_EQ(leaf.at("stored_tensors").at("lm_head.trellis").at("shape"), (nlohmann::json{8, 16, 96}));
}

TEST(Converter, Fp8WeightsAreReadAndTheirScalesAreNotKept) {
  const Source source;
  const TempFolder folder;
  const std::string key = "model.language_model.layers.1.mlp.shared_expert.down_proj";
  testing::TensorWriter writer;
  for (const TensorEntry& entry : source.checkpoint->entries()) {
    const bool fp8 = entry.name == key + ".weight";
    const auto elements = static_cast<std::size_t>(entry.elements());
    writer.add(entry.name, fp8 ? DType::f8_e4m3 : entry.dtype, entry.shape,
               fp8 ? std::string(elements, '\x38')
                   : std::string(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()));
  }
  writer.add_floats(key + ".weight_scale_inv", {1, 1}, {0.25f});
  writer.write(folder / "model.safetensors");
  auto config = nlohmann::json::parse(contents(source / "source").at("config.json"));
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  testing::write_text(folder / "config.json", config.dump());
  QuantizeOptions options;
  options.bits = 5;
  const Checkpoint fp8(folder.path());
  convert(fp8, source / "made", options);
  const Checkpoint made(source / "made");
  EXPECT_EQ(made.find(key + ".weight_scale_inv"), nullptr);
  ASSERT_NE(made.find(key + ".trellis"), nullptr);
  const LinearView stored = made.linear(key, 96, 128);
  double sum = 0;
  for (double value : effective_weight(*stored.trellis())) sum += value;
  EXPECT_NEAR(sum / (96 * 128), 0.25, 0.02);
  EXPECT_TRUE(nlohmann::json::parse(contents(source / "made").at("quantization_config.json"))
                  .contains("original_quantization_config"));
}

TEST(Converter, BalancedBitsStayWithinTheBudgetAndSmallShardsHaveAnIndex) {
  const Source source;
  QuantizeOptions options;
  options.bits = 3.5;
  options.codebook = Codebook::mcg;
  options.shard_bytes = 150'000;
  const QuantizeReport report = convert(*source.checkpoint, source / "made", options);
  EXPECT_LE(report.bits, 3.5);
  EXPECT_GT(report.bits, 3.3);
  for (const auto& linear : report.linears) {
    if (linear.key.find(".experts.") != std::string::npos) {
      EXPECT_LE(linear.bits, 4) << linear.key;
    }
  }
  const auto files = contents(source / "made");
  ASSERT_TRUE(files.contains("model.safetensors.index.json"));
  ASSERT_FALSE(files.contains("model.safetensors"));
  const auto index = nlohmann::json::parse(files.at("model.safetensors.index.json"));
  const Checkpoint made(source / "made");
  EXPECT_EQ(index.at("weight_map").size(), made.entries().size());
  for (const TensorEntry& entry : made.entries())
    EXPECT_EQ(index.at("weight_map").at(entry.name), made.tensors().path_of(entry).filename().string());
}

TEST(Converter, SlowMeasuredBitsFollowTheMeasurementThatTheWorkFolderKeeps) {
  const Source source;
  QuantizeOptions options;
  options.bits = 3;
  options.allocation = Allocation::measured;
  options.keep_work = true;
  const QuantizeReport report = convert(*source.checkpoint, source / "made", options);
  EXPECT_LE(report.bits, 3);

  const auto kept = nlohmann::json::parse(contents(source / "made.work").at("importance.json")).at("values");
  ModelBlueprint model = read_blueprint(*source.checkpoint);
  const int layers = static_cast<int>(model.layers.size());
  std::vector<AllocationGroup> groups = allocation_groups(model);
  for (AllocationGroup& group : groups) group.importance = kept.at(group.name);
  const std::int64_t budget = total_bits(groups, allocate_bits(groups, layers, 3, false));
  const std::vector<int> bits = allocate_by_importance(groups, layers, budget);
  std::map<std::string, int> wanted;
  for (std::size_t i = 0; i < groups.size(); ++i) wanted[groups[i].name] = bits[i];
  std::size_t next = 0;
  for (LayerBlueprint& layer : model.layers) {
    for (const LinearTask& task : linear_tasks(layer)) {
      EXPECT_EQ(report.linears[next].key, task.key);
      EXPECT_EQ(report.linears[next++].bits, wanted.at(task.group)) << task.key;
    }
  }

  options.resume = true;
  bool measured = false;
  convert(
      *source.checkpoint, source / "again",
      [&] {
        options.work = source / "made.work";
        return options;
      }(),
      2, [&](std::string_view phase, auto, auto) { measured |= phase == "measuring"; });
  EXPECT_FALSE(measured);
  EXPECT_EQ(contents(source / "again"), contents(source / "made"));
}

TEST(Converter, SameBytesOnAnyNumberOfThreads) {
  const Source source;
  QuantizeOptions options;
  options.bits = 6;
  convert(*source.checkpoint, source / "one", options, 1);
  convert(*source.checkpoint, source / "three", options, 3);
  EXPECT_EQ(contents(source / "one"), contents(source / "three"));
}

TEST(Converter, SlowResumesToTheSameBytes) {
  const Source source;
  QuantizeOptions options;
  options.bits = 6;
  int calls = 0;
  convert(*source.checkpoint, source / "whole", options, 2, [&](const auto&...) { ++calls; });
  std::mt19937 random(7);
  options.resume = true;
  for (int round = 0; round < 10; ++round) {
    int left = static_cast<int>(random() % static_cast<unsigned>(calls));
    const auto interrupt = [&](const auto&...) {
      if (left-- == 0) throw std::runtime_error("interrupted");
    };
    try {
      convert(*source.checkpoint, source / "made", options, 2, interrupt);
    } catch (const std::runtime_error&) {
    }
  }
  convert(*source.checkpoint, source / "made", options);
  EXPECT_EQ(contents(source / "whole"), contents(source / "made"));
  EXPECT_FALSE(std::filesystem::exists(source / "made.work"));
}

TEST(Converter, DamagedPartsAreMadeAgain) {
  const Source source;
  QuantizeOptions options;
  options.bits = 6;
  options.keep_work = true;
  convert(*source.checkpoint, source / "whole", options);
  const std::filesystem::path part = source / "whole.work" / "layer-00000.safetensors";
  std::fstream file(part, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(part)) - 100);
  file.put('x');
  file.close();
  testing::write_text(source / "whole.work" / "head.json", "{\"hash\": 1, \"linears\": [{}]}");
  options.resume = true;
  std::filesystem::rename(source / "whole.work", source / "made.work");
  const QuantizeReport report = convert(*source.checkpoint, source / "made", options);
  EXPECT_EQ(contents(source / "whole"), contents(source / "made"));
  EXPECT_GT(report.encoded, 0);
}

TEST(Converter, RefusesBadInputsInOneSentence) {
  const Source source;
  QuantizeOptions options;
  options.bits = 6;
  const auto refusal = [&](const std::filesystem::path& to) {
    return message_of([&] { convert(*source.checkpoint, to, options); });
  };
  const Checkpoint exl3(PERGOLA_SOURCE_DIR "/models/story");
  EXPECT_THAT(message_of([&] { convert(exl3, source / "a", options); }), HasSubstr("EXL3 already"));
  testing::write_text(source / "file", "x");
  EXPECT_THAT(refusal(source / "file"), HasSubstr("not a folder"));
  EXPECT_THAT(refusal(source / "file/below"), HasSubstr("cannot create this folder"));
  EXPECT_THAT(refusal(source / "source"), HasSubstr("not empty"));
  options.bits = 8.5;
  EXPECT_THAT(refusal(source / "a"), HasSubstr("8.5 bits"));
  options.bits = 6;
  options.head_bits = 9;
  EXPECT_THAT(refusal(source / "a"), AllOf(HasSubstr("--head-bits"), HasSubstr("9 bits")));
  options.head_bits = 6;
  EXPECT_FALSE(std::filesystem::exists(source / "a"));

  std::filesystem::create_directory(source / "b.work");
  testing::write_text(source / "b.work" / "notes.txt", "mine");
  EXPECT_THAT(refusal(source / "b"), HasSubstr("not one of ours"));
  options.keep_work = true;
  convert(*source.checkpoint, source / "c", options);
  std::filesystem::remove_all(source / "c");
  EXPECT_THAT(refusal(source / "c"), HasSubstr("--resume"));
  options.resume = true;
  options.seed = 4;
  EXPECT_THAT(refusal(source / "c"), HasSubstr("another conversion"));
}

TEST(Converter, RefusesWeightsThatAreNoNumbers) {
  const Source source;
  const std::filesystem::path file = source / "source" / "model.safetensors";
  const TensorEntry entry = source.checkpoint->require("model.language_model.layers.0.linear_attn.in_proj_qkv.weight");
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(entry.offset) + 4);
  const float infinity = std::numeric_limits<float>::infinity();
  stream.write(reinterpret_cast<const char*>(&infinity), sizeof infinity);
  stream.close();
  const Checkpoint damaged(source / "source");
  QuantizeOptions options;
  options.bits = 6;
  EXPECT_THAT(message_of([&] { convert(damaged, source / "a", options); }),
              AllOf(HasSubstr("layers.0.linear_attn.in_proj_qkv"), HasSubstr("weight [0, 1] is not a finite number")));
  EXPECT_FALSE(std::filesystem::exists(source / "a"));
}

/// The inner weight of every linear, for a reader that shares no code with this project to compare with.
void write_inner_weights(const Checkpoint& model, const std::filesystem::path& path) {
  std::vector<SafetensorsWriter::Tensor> declarations;
  std::vector<std::vector<Half>> values;
  for (const TensorEntry& entry : model.entries()) {
    if (!entry.name.ends_with(".trellis")) continue;
    const std::string key = entry.name.substr(0, entry.name.size() - 8);
    const std::int64_t in = 16 * entry.shape[0], out = 16 * entry.shape[1];
    declarations.push_back({key, DType::f16, {in, out}});
    values.push_back(decode_inner(*model.linear(key, in, out).trellis()));
  }
  SafetensorsWriter writer(path, declarations);
  for (const auto& halves : values) writer.write(std::as_bytes(std::span(halves)));
  writer.finish();
}

TEST(Converter, SlowAnIndependentReaderDecodesTheSameValues) {
  if (std::system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0)
    GTEST_SKIP()
        << "SKIPPED: python3-numpy is not installed (tools/packages-dev.txt), the independent reader did not run";
  const Source source;
  for (const auto& [codebook, bits] :
       {std::pair{Codebook::mul1, 4.5}, {Codebook::mcg, 3.0}, {Codebook::three_inst, 5.0}}) {
    QuantizeOptions options;
    options.bits = bits;
    options.codebook = codebook;
    const std::filesystem::path made = source / std::string(name_of(codebook)).c_str(),
                                dump = source / "inner.safetensors";
    convert(*source.checkpoint, made, options);
    write_inner_weights(Checkpoint(made), dump);
    const std::string command =
        fmt::format("/usr/bin/python3 " PERGOLA_SOURCE_DIR "/tests/quantize/exl3_reader.py {} {} {}", made.string(),
                    dump.string(), (source / "source").string());
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
}

}  // namespace
}  // namespace pergola
