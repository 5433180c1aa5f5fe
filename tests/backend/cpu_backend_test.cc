#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/half.h"
#include "support/device_tensors.h"
#include "support/trellis_samples.h"

namespace pergola {
namespace {

using testing::DeviceTensors;
using testing::random_normal;
using testing::relative_error;

std::string message_of(const BackendOptions& options) {
  try {
    open_backend("cpu", options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CpuBackend, RefusesInstructionSetsByName) {
  EXPECT_NE(message_of({.isa = "sse9"}).find("'sse9' is not an instruction set"), std::string::npos);
  if (cpu_features().best < Isa::amx) {
    EXPECT_NE(message_of({.isa = "amx"}).find("does not have amx"), std::string::npos);
  }
  EXPECT_EQ(message_of({.isa = "scalar"}), "");
}

TEST(CpuBackend, SaysWhatItIs) {
  const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = 3, .isa = "scalar", .max_rows = 17});
  EXPECT_EQ(cpu->info().backend, "cpu");
  EXPECT_EQ(cpu->info().instruction_set, "scalar");
  EXPECT_EQ(cpu->info().threads, 3);
  EXPECT_FALSE(cpu->info().name.empty());
  EXPECT_GT(cpu->info().memory_bytes, 1u << 20);
  EXPECT_EQ(cpu->max_rows(), 17);
}

TEST(CpuBackend, MemoryIsZeroedAlignedAndRefusedInASentence) {
  const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = 1});
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, std::size_t{5} << 20}) {
    const std::unique_ptr<Buffer> buffer = cpu->allocate(bytes, "a test");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->address()) % 64, 0u);
    const auto* data = static_cast<const unsigned char*>(buffer->address());
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], 0);
  }
  for (const std::size_t bytes : {std::size_t{1} << 60, std::numeric_limits<std::size_t>::max()}) {
    try {
      cpu->allocate(bytes, "the KV cache");
      FAIL() << "got " << bytes << " bytes";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("not enough memory for the KV cache"), std::string::npos)
          << error.what();
    }
  }
}

TEST(CpuBackend, CopiesKeepStridesApart) {
  const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = 1});
  DeviceTensors made(*cpu, 6);
  const std::vector<float> values = random_normal<float>(5 * 9, 1);
  const Tensor tensor = made.floats(values, 5);
  EXPECT_EQ(made.read(tensor), values);
  cpu->fill_zero(tensor.slice_rows(1, 2));
  const std::vector<float> after = made.read(tensor);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(after[i], i / 9 == 1 || i / 9 == 2 ? 0.0f : values[i]);
}

/// One shape through an operation of both backends.
class Elementwise : public ::testing::Test {
 protected:
  const std::vector<std::pair<std::int64_t, std::int64_t>> shapes_{{1, 1}, {1, 2048}, {3, 37}, {70, 2048}, {300, 130}};
};

TEST_F(Elementwise, EqualTheReference) {
  const std::unique_ptr<Backend> reference = open_backend("reference", {.threads = 1});
  for (const testing::CpuVariant& variant : testing::cpu_variants()) {
    const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = variant.threads, .isa = variant.isa});
    for (const auto& [rows, width] : shapes_) {
      SCOPED_TRACE(::testing::Message() << variant.isa << " " << rows << " x " << width);
      std::vector<std::vector<float>> results[2];
      for (Backend* backend : {reference.get(), cpu.get()}) {
        DeviceTensors made(*backend, 5);
        const Tensor x = made.floats(random_normal<float>(rows * width, 1), rows);
        const Tensor delta = made.floats(random_normal<float>(rows * width, 2), rows);
        const Tensor out = made.result(rows, width);
        const RmsNorm norm{made.floats(random_normal<float>(width, 3), 1), 1e-6f};
        std::vector<std::vector<float>>& all = results[backend == cpu.get() ? 1 : 0];
        backend->rms_norm(norm, x, out);
        all.push_back(made.read(out));
        backend->gated_activation(Activation::silu, x, delta, out);
        all.push_back(made.read(out));
        backend->gated_activation(Activation::gelu_tanh, x, delta, out);
        all.push_back(made.read(out));
        backend->add_rms_norm(norm, x, delta, out);
        all.push_back(made.read(out));
        all.push_back(made.read(x));
        std::vector<std::int32_t> indices;
        for (std::int64_t i = 0; i < rows; ++i) indices.push_back(static_cast<std::int32_t>((i * 7 + 3) % rows));
        backend->gather_rows(x, made.ints(indices), out);
        all.push_back(made.read(out));
      }
      for (std::size_t i = 0; i < results[0].size(); ++i)
        ASSERT_LE(relative_error(results[1][i], results[0][i]), 1e-6) << "result " << i;
    }
  }
}

TEST_F(Elementwise, EmbeddingOfEveryType) {
  for (const testing::CpuVariant& variant : testing::cpu_variants()) {
    const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = variant.threads, .isa = variant.isa});
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      const std::int64_t vocab = 50, width = 2051;
      const std::vector<float> values = random_normal<float>(vocab * width, 1);
      std::vector<std::byte> bytes{std::byte{0}};  // an odd start
      std::vector<float> stored;
      for (const float v : values) {
        const std::uint16_t bits = type == DType::f16 ? to_half(v).bits : to_bfloat16(v).bits;
        stored.push_back(type == DType::f32 ? v : type == DType::f16 ? to_float(Half{bits}) : to_float(BFloat16{bits}));
        const auto* raw =
            type == DType::f32 ? reinterpret_cast<const std::byte*>(&v) : reinterpret_cast<const std::byte*>(&bits);
        bytes.insert(bytes.end(), raw, raw + size_of(type));
      }
      const std::unique_ptr<Embedding> table = cpu->bind_embedding({type, vocab, width, std::span(bytes).subspan(1)});
      DeviceTensors made(*cpu, 2);
      const std::vector<std::int32_t> ids{49, 0, 7, 7, 21, 3, 4, 5, 6, 8, 9, 10};
      const Tensor out = made.result(static_cast<std::int64_t>(ids.size()), width);
      cpu->embed(*table, made.ints(ids), 1.0f, out);
      const std::vector<float> rows = made.read(out);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        ASSERT_EQ(rows[i], stored[static_cast<std::size_t>(ids[i / width] * width) + i % width]);
      }
    }
  }
}

}  // namespace
}  // namespace pergola
