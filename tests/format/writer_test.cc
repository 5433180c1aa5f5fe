#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/half.h"
#include "format/allocation_peak.h"
#include "format/logits_file.h"
#include "support/checkpoint_writer.h"

namespace pergola {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  TempFolder folder;
  const std::vector<SafetensorsWriter::Tensor> tensors{
      {"a\"é", DType::u8, {3}}, {"big", DType::f32, {1000, 1000}}, {"none", DType::f32, {0}}, {"s", DType::i32, {}}};
  const std::string big(4000000, 'b');
  {
    SafetensorsWriter writer(folder / "x.safetensors", tensors, {{"format", "pt"}});
    writer.write(bytes("ab"));
    writer.write(bytes("c" + big));
    writer.write(bytes("123"));
    writer.write(bytes("4"));
    EXPECT_FALSE(std::filesystem::exists(folder / "x.safetensors"));
    writer.finish();
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("x.safetensors"));
  const TensorTable table({folder / "x.safetensors"});
  ASSERT_EQ(table.entries().size(), 4u);
  EXPECT_EQ(std::memcmp(table.find("a\"é")->bytes.data(), "abc", 3), 0);
  EXPECT_EQ(std::memcmp(table.find("big")->bytes.data(), big.data(), big.size()), 0);
  EXPECT_EQ(std::memcmp(table.find("s")->bytes.data(), "1234", 4), 0);
  EXPECT_EQ((table.find("a\"é")->offset) % 8, 0u);
}

TEST(SafetensorsWriter, UnfinishedFilesLeaveNothing) {
  TempFolder folder;
  testing::write_text(folder / "x", "old");
  {
    SafetensorsWriter writer(folder / "x", std::vector<SafetensorsWriter::Tensor>{{"a", DType::u8, {3}}});
    writer.write(bytes("ab"));
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("x"));
  EXPECT_EQ(content_of(folder / "x"), "old");
}

TEST(SafetensorsWriter, FollowsLinksAndReplacesTheirTarget) {
  TempFolder folder;
  testing::write_text(folder / "target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  SafetensorsWriter writer(folder / "link", std::vector<SafetensorsWriter::Tensor>{{"a", DType::u8, {1}}});
  writer.write(bytes("z"));
  writer.finish();
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(TensorTable({folder / "target"}).entries().size(), 1u);
}

TEST(SafetensorsWriter, PlacesThatCannotBeWrittenAreNamed) {
  TempFolder folder;
  const std::vector<SafetensorsWriter::Tensor> tensors{{"a", DType::u8, {1}}};
  const auto open = [&](const std::filesystem::path& path) {
    return testing::refusal(0, [&] { SafetensorsWriter writer(path, tensors); });
  };
  EXPECT_THAT(open(folder / "absent" / "x"), HasSubstr("x: cannot create the file: No such file or directory"));
  EXPECT_THAT(open(folder.path()), HasSubstr("not a regular file"));
  EXPECT_THAT(open("/dev/null"), HasSubstr("/dev/null: cannot write here: it is not a regular file"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

/// Lets no file of this process grow beyond a size while it lives: writing more fails as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(SafetensorsWriter, AFullDiskIsOneErrorAndLeavesNothing) {
  TempFolder folder;
  testing::write_text(folder / "x", "old");
  const std::vector<SafetensorsWriter::Tensor> tensors{{"a", DType::u8, {5000000}}};
  const auto fill = [&](rlim_t limit, std::size_t piece) {
    const FileSizeLimit full(limit);
    return testing::refusal(0, [&] {
      SafetensorsWriter writer(folder / "x", tensors);
      for (std::size_t left = 5000000; left > 0; left -= piece) writer.write(bytes(std::string(piece, 'x')));
      writer.finish();
    });
  };
  for (const rlim_t limit : {rlim_t{0}, rlim_t{10}, rlim_t{3000000}, rlim_t{5000000}}) {
    for (const std::size_t piece : {std::size_t{5000000}, std::size_t{1000}}) {
      EXPECT_THAT(fill(limit, piece), HasSubstr("x: cannot write the file: File too large")) << limit;
      EXPECT_THAT(names_in(folder.path()), ElementsAre("x"));
      EXPECT_EQ(content_of(folder / "x"), "old");
    }
  }
}

TEST(LogitsFile, RoundTrip) {
  TempFolder folder;
  const std::vector<std::int32_t> ids{0, 1, 2, 2, 1, 0};
  std::vector<float> logits(2 * 3 * 4);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i) - 5;
  LogitsWriter writer(folder / "l.safetensors", ids, 2, 4);
  writer.write(std::span(logits).first(4));
  writer.write(std::span(logits).subspan(4));
  writer.finish();

  const LogitsFile file(folder / "l.safetensors");
  EXPECT_EQ(file.sequences(), 2);
  EXPECT_EQ(file.positions(), 3);
  EXPECT_EQ(file.vocab_size(), 4);
  EXPECT_THAT(file.ids(1), ElementsAre(2, 1, 0));
  std::vector<float> row(4);
  file.read(1, 2, row);
  EXPECT_THAT(row, ElementsAre(15, 16, 17, 18));
}

TEST(LogitsFile, HalfPrecisionRows) {
  TempFolder folder;
  testing::TensorWriter writer;
  writer.add("logits", DType::f16, {1, 1, 2},
             testing::bytes_of(std::vector<std::uint16_t>{to_half(1.5f).bits, to_half(-2).bits}));
  writer.add("input_ids", DType::i32, {1, 1}, testing::bytes_of(std::vector<std::int32_t>{1}));
  writer.write(folder / "l");
  std::vector<float> row(2);
  LogitsFile(folder / "l").read(0, 0, row);
  EXPECT_THAT(row, ElementsAre(1.5f, -2));
}

TEST(LogitsFile, BadFilesAreRefused) {
  TempFolder folder;
  const auto with = [&](DType id_type, std::vector<std::int64_t> id_shape, std::vector<std::int32_t> ids, DType type,
                        std::vector<std::int64_t> shape) {
    testing::TensorWriter writer;
    std::size_t size = size_of(type);
    for (const std::int64_t dimension : shape) size *= static_cast<std::size_t>(dimension);
    writer.add("input_ids", id_type, std::move(id_shape), testing::bytes_of(ids));
    writer.add("logits", type, std::move(shape), std::string(size, '\0'));
    writer.write(folder / "l");
    return testing::refusal(200, [&] { LogitsFile file(folder / "l"); });
  };
  EXPECT_THAT(with(DType::i32, {1, 2}, {0, 2}, DType::f32, {1, 2, 2}),
              HasSubstr("tensor input_ids: token id 2 is outside the vocabulary of 2"));
  EXPECT_THAT(with(DType::i32, {1, 2}, {0, -1}, DType::f32, {1, 2, 2}), HasSubstr("token id -1"));
  EXPECT_THAT(with(DType::i32, {2}, {0, 1}, DType::f32, {1, 2, 2}),
              HasSubstr("expected 2 dimensions, found shape [2]"));
  EXPECT_THAT(with(DType::i32, {1, 2}, {0, 1}, DType::f32, {2, 1, 2}), HasSubstr("does not fit input_ids [1, 2]"));
  EXPECT_THAT(with(DType::i32, {1, 2}, {0, 1}, DType::i32, {1, 2, 2}),
              HasSubstr("tensor logits: expected F32, F16 or BF16"));
  EXPECT_THAT(with(DType::f32, {1, 2}, {0, 1}, DType::f32, {1, 2, 2}), HasSubstr("expected I32"));
  EXPECT_THAT(with(DType::i32, {1, 0}, {}, DType::f32, {1, 0, 2}), HasSubstr("does not fit"));
  EXPECT_THAT(with(DType::i32, {1, 1}, {0}, DType::f32, {1, 1, 0}), HasSubstr("does not fit"));
  testing::TensorWriter writer;
  writer.add("input_ids", DType::i32, {1, 1}, testing::bytes_of(std::vector<std::int32_t>{0}));
  writer.write(folder / "l");
  EXPECT_THAT(testing::refusal(0, [&] { LogitsFile file(folder / "l"); }),
              HasSubstr("tensor logits: the tensor is missing"));
}

TEST(LogitsFile, SharedReferencesOpen) {
  const auto shared = testing::shared_folder();
  if (shared.empty()) GTEST_SKIP() << "the shared folder is not here";
  for (const char* name : {"story-moe", "story-moe-exl3-mul1-4.0", "story-moe-exl3-mcg-3.1"}) {
    const LogitsFile file(shared / "reference_logits" / (std::string(name) + ".safetensors"));
    EXPECT_EQ(file.sequences(), 2);
    EXPECT_EQ(file.positions(), 256);
    EXPECT_EQ(file.vocab_size(), 4096);
  }
}

}  // namespace
}  // namespace pergola
