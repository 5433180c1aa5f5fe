#include "format/safetensors.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "format/allocation_peak.h"
#include "support/checkpoint_writer.h"

namespace pergola {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::raw_safetensors;

/// The entries point into `file`.
std::vector<TensorEntry> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "m.safetensors");
}

std::string refusal(const std::string& file, std::size_t header_bytes) {
  return testing::refusal(header_bytes, [&] { parse(file); });
}

/// What is said about a file with this header and `data` bytes behind it.
std::string refusal_of_header(const std::string& header, std::size_t data = 16) {
  return refusal(raw_safetensors(header, std::string(data, 'd')), header.size());
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

std::string header_of(const std::vector<std::string>& members) {
  return fmt::format("{{{}}}", fmt::join(members, ","));
}

TEST(Safetensors, ReadsNamesTypesShapesAndUnalignedBytes) {
  const std::string file =
      raw_safetensors(header_of({R"("__metadata__":{"format":"pt"})", tensor("a", "U8", "[3]", "[0,3]"),
                                 tensor("b.weight", "BF16", "[2,1,2]", "[3,11]"), tensor("s", "I32", "[]", "[11,15]"),
                                 tensor("none", "F32", "[0,7]", "[15,15]")}) +
                          "   ",
                      "abcdefghijklmno");
  const auto entries = parse(file);
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[1].name, "b.weight");
  EXPECT_EQ(entries[1].dtype, DType::bf16);
  EXPECT_THAT(entries[1].shape, ElementsAre(2, 1, 2));
  EXPECT_EQ(entries[1].elements(), 4);
  EXPECT_EQ(std::memcmp(entries[1].bytes.data(), "defghijk", 8), 0);
  EXPECT_EQ(entries[1].bytes.data(), std::as_bytes(std::span(file)).data() + entries[1].offset);
  EXPECT_TRUE(entries[2].shape.empty());
  EXPECT_EQ(entries[2].elements(), 1);
  EXPECT_EQ(entries[3].elements(), 0);
}

TEST(Safetensors, EveryTypeHasItsSize) {
  const std::pair<const char*, int> types[] = {{"F64", 8},     {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1},
                                               {"F8_E5M2", 1}, {"I64", 8}, {"I32", 4}, {"I16", 2},  {"I8", 1},
                                               {"U64", 8},     {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}};
  for (const auto& [name, bytes] : types) {
    EXPECT_EQ(parse(raw_safetensors(header_of({tensor("t", name, "[3]", fmt::format("[0,{}]", 3 * bytes))}),
                                    std::string(24, 'x')))[0]
                  .elements(),
              3)
        << name;
  }
}

TEST(Safetensors, MetadataUnknownMembersAndGapsAreSkipped) {
  const std::string file = raw_safetensors(
      R"({"__metadata__":{"dtype":"x","nested":{"shape":[1,"a",null]},"n":-1},"t":{"note":[[1.5],{"dtype":3}],"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
      "abcdef");
  const auto entries = parse(file);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(static_cast<char>(entries[0].bytes[0]), 'd');
}

TEST(Safetensors, HeaderMayListTensorsInAnyOrder) {
  EXPECT_EQ(
      parse(raw_safetensors(header_of({tensor("b", "U8", "[2]", "[2,4]"), tensor("a", "U8", "[2]", "[0,2]")}), "abcd"))
          .size(),
      2u);
}

TEST(Safetensors, EscapesInNamesAreDecoded) {
  EXPECT_EQ(parse(raw_safetensors(header_of({tensor("\\u00e9\\\"x", "U8", "[0]", "[0,0]")})))[0].name, "\u00e9\"x");
}

TEST(Safetensors, EmptyAndTruncatedFilesAreRefused) {
  EXPECT_THAT(refusal("", 0), HasSubstr("m.safetensors: 0 bytes are too few"));
  EXPECT_THAT(refusal("1234567", 0), HasSubstr("7 bytes are too few"));
  const std::string good = raw_safetensors(header_of({tensor("t", "F32", "[4]", "[0,16]")}), std::string(16, 'x'));
  ASSERT_EQ(parse(good).size(), 1u);
  for (std::size_t length = 0; length < good.size(); ++length) refusal(good.substr(0, length), good.size());
  EXPECT_THAT(refusal(good.substr(0, good.size() - 1), 0),
              HasSubstr("tensor t: data offsets [0, 16] reach beyond the 15 bytes"));
}

TEST(Safetensors, HeaderLengthBeyondTheFileIsRefused) {
  std::string file = raw_safetensors("{}", "12345678");
  for (const std::uint64_t length :
       {std::uint64_t{11}, std::uint64_t{1} << 40, std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    std::memcpy(file.data(), &length, sizeof(length));
    EXPECT_THAT(refusal(file, 0), HasSubstr("is beyond the file's 18 bytes"));
  }
  file[0] = 0;
  std::memset(file.data(), 0, 8);
  EXPECT_THAT(refusal(file, 0), HasSubstr("does not start with '{'"));
}

TEST(Safetensors, GitLfsPointerIsNamed) {
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 5\n", 0),
              HasSubstr("Git LFS pointer"));
}

TEST(Safetensors, BadOffsetsAreRefused) {
  const auto with = [](const std::string& offsets) {
    return refusal_of_header(header_of({tensor("t", "U8", "[4]", offsets)}));
  };
  EXPECT_THAT(with("[13,17]"), HasSubstr("tensor t: data offsets [13, 17] reach beyond the 16 bytes"));
  EXPECT_THAT(with("[4,0]"), HasSubstr("reversed"));
  EXPECT_THAT(with("[-4,0]"), HasSubstr("-4 in 'data_offsets' is negative"));
  EXPECT_THAT(with("[0,9223372036854775808]"), HasSubstr("reach beyond"));
  EXPECT_THAT(with("[18446744073709551612,18446744073709551615]"), HasSubstr("reach beyond"));
  EXPECT_THAT(with("[0,18446744073709551620]"), HasSubstr("not a whole number in range"));
  EXPECT_THAT(with("[0,4.0]"), HasSubstr("not a whole number in range"));
  EXPECT_THAT(with("[0,1e999]"), HasSubstr("not valid JSON"));
  EXPECT_THAT(with("[0]"), HasSubstr("'data_offsets' needs two numbers"));
  EXPECT_THAT(with("[]"), HasSubstr("'data_offsets' needs two numbers"));
  EXPECT_THAT(with("[0,4,4]"), HasSubstr("more than two numbers"));
  EXPECT_THAT(with("[[0,4]]"), HasSubstr("wrong type"));
  EXPECT_THAT(with("[\"0\",4]"), HasSubstr("wrong type"));
  EXPECT_THAT(with("{\"0\":4}"), HasSubstr("wrong type"));
  EXPECT_THAT(with("4"), HasSubstr("wrong type"));
  EXPECT_THAT(with("null"), HasSubstr("wrong type"));
}

TEST(Safetensors, OverlappingTensorsAreRefused) {
  const auto with = [](const std::string& a, const std::string& b) {
    return refusal_of_header(header_of({tensor("a", "U8", "[4]", a), tensor("b", "U8", "[4]", b)}));
  };
  EXPECT_THAT(with("[0,4]", "[3,7]"), HasSubstr("tensor b, byte"));
  EXPECT_THAT(with("[3,7]", "[0,4]"), HasSubstr("overlap those of b"));
  EXPECT_THAT(with("[0,4]", "[0,4]"), HasSubstr("overlap"));
  EXPECT_EQ(
      parse(raw_safetensors(header_of({tensor("a", "U8", "[2]", "[0,2]"), tensor("e", "U8", "[0]", "[1,1]")}), "xx"))
          .size(),
      2u);
}

TEST(Safetensors, ShapeMustMatchTheSpan) {
  const auto with = [](const std::string& dtype, const std::string& shape) {
    return refusal_of_header(header_of({tensor("t", dtype, shape, "[0,8]")}));
  };
  EXPECT_THAT(with("F32", "[3]"), HasSubstr("tensor t: shape [3] of F32 does not match its span of 8 bytes"));
  EXPECT_THAT(with("F32", "[]"), HasSubstr("does not match"));
  EXPECT_THAT(with("F32", "[0]"), HasSubstr("does not match"));
  EXPECT_THAT(with("F32", "[4294967296,4294967296,2]"), HasSubstr("does not match"));  // 2^67 bytes
  EXPECT_THAT(with("F16", "[4611686018427387908,2]"), HasSubstr("does not match"));    // 8 modulo 2^64
  EXPECT_THAT(with("U8", "[9223372036854775808]"), HasSubstr("too large"));
  EXPECT_THAT(with("U8", "[-8]"), HasSubstr("-8 in 'shape' is negative"));
  EXPECT_THAT(with("U8", "[-1,-8]"), HasSubstr("negative"));
  EXPECT_THAT(with("U8", "[8.0]"), HasSubstr("not a whole number"));
  EXPECT_THAT(with("U8", fmt::format("[{}]", fmt::join(std::vector<int>(33, 1), ","))),
              HasSubstr("more than 32 dimensions"));
  EXPECT_THAT(with("U8", "8"), HasSubstr("wrong type"));
  EXPECT_THAT(with("U8", "[[8]]"), HasSubstr("wrong type"));
  EXPECT_THAT(with("U8", "[true]"), HasSubstr("wrong type"));
  EXPECT_THAT(with("Q4", "[8]"), HasSubstr("element type 'Q4' is not known"));
}

TEST(Safetensors, MissingAndRepeatedMembersAreRefused) {
  EXPECT_THAT(refusal_of_header(R"({"t":{"shape":[1],"data_offsets":[0,1]}})"),
              HasSubstr("tensor t: 'dtype' is missing"));
  EXPECT_THAT(refusal_of_header(R"({"t":{"dtype":"U8","data_offsets":[0,1]}})"), HasSubstr("'shape' is missing"));
  EXPECT_THAT(refusal_of_header(R"({"t":{"dtype":"U8","shape":[1]}})"), HasSubstr("'data_offsets' needs"));
  EXPECT_THAT(refusal_of_header(R"({"t":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})"),
              HasSubstr("'shape' occurs twice"));
  EXPECT_THAT(refusal_of_header(R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})"),
              HasSubstr("'dtype' occurs twice"));
  EXPECT_THAT(refusal_of_header(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[],"data_offsets":[0,1]}})"),
              HasSubstr("occurs twice"));
  EXPECT_THAT(refusal_of_header(R"({"t":{"dtype":["U8"],"shape":[1],"data_offsets":[0,1]}})"), HasSubstr("wrong type"));
  EXPECT_THAT(refusal_of_header(R"({"t":3})"), HasSubstr("not an object"));
  EXPECT_THAT(refusal_of_header(R"({"t":[3]})"), HasSubstr("not an object"));
  EXPECT_THAT(refusal_of_header(R"({"__metadata__":3})"), HasSubstr("not an object"));
}

TEST(Safetensors, DuplicateNamesInAFileAreRefused) {
  EXPECT_THAT(refusal_of_header(header_of({tensor("t", "U8", "[1]", "[0,1]"), tensor("u", "U8", "[1]", "[1,2]"),
                                           tensor("\\u0074", "U8", "[1]", "[2,3]")})),
              HasSubstr("tensor t: the name occurs twice"));
}

TEST(Safetensors, DuplicateNamesAcrossFilesAreRefused) {
  testing::TempFolder folder;
  testing::TensorWriter writer;
  writer.add_floats("t", {1}, {1});
  writer.write(folder / "a.safetensors");
  writer.write(folder / "b.safetensors");
  const std::string message = testing::refusal(100, [&] {
    TensorTable({folder / "a.safetensors", folder / "b.safetensors"});
  });
  EXPECT_THAT(message, HasSubstr("b.safetensors, tensor t: the name occurs also in"));
  EXPECT_THAT(message, HasSubstr("a.safetensors"));
}

TEST(Safetensors, BrokenJsonIsRefused) {
  EXPECT_THAT(refusal_of_header("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of_header("{}x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of_header("{} {}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of_header(std::string("{\0}", 3)), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of_header("[]"), HasSubstr("does not start with '{'"));
  EXPECT_THAT(refusal_of_header(header_of({tensor("t\xFF", "U8", "[1]", "[0,1]")})),
              HasSubstr("invalid string: ill-formed UTF-8 byte"));
  EXPECT_THAT(refusal_of_header(header_of({tensor("\xED\xA0\x80", "U8", "[1]", "[0,1]")})), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal_of_header("{\"unfinished"), HasSubstr("byte"));
}

TEST(Safetensors, DeepJsonIsRefused) {
  for (const std::string open : {"[", "{\"a\":"}) {
    std::string header = R"({"t":{"note":)";
    for (int level = 0; level < 1000000; ++level) header += open;
    EXPECT_THAT(refusal_of_header(header), HasSubstr("nested deeper than 16 levels"));
  }
}

TEST(Safetensors, LargeHostileHeadersStayWithinTheirMemory) {
  constexpr int kTensors = 60000;
  std::vector<std::string> members;
  for (int i = 0; i < kTensors; ++i) members.push_back(tensor(std::to_string(i), "U8", "[0]", "[0,0]"));
  const std::string tiny = header_of(members);
  const std::string same = header_of(std::vector<std::string>(kTensors, tensor("", "U8", "[0]", "[0,0]")));
  const std::string rank = R"({"t":{"shape":[)" + std::string(8000000, '1');
  const std::string name(8000000, 'n');

  EXPECT_LE(testing::allocation_peak([&] { EXPECT_EQ(parse(raw_safetensors(tiny)).size(), std::size_t{kTensors}); }),
            testing::allowed_peak(tiny.size()));
  EXPECT_THAT(refusal_of_header(same), HasSubstr("the name occurs twice"));
  EXPECT_THAT(refusal_of_header(rank), HasSubstr("number overflow"));
  const std::string message = refusal_of_header(fmt::format(R"({{"{}":3}})", name));
  EXPECT_LT(message.size(), 1000u);
}

}  // namespace
}  // namespace pergola
