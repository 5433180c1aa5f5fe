#include "backend/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

#include "base/error.h"

namespace pergola {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

/// Ranks over the reference backend, each in a thread.
class Ranks {
 public:
  explicit Ranks(int count, milliseconds limit = milliseconds(60'000)) {
    std::vector<Backend*> pointers;
    for (int rank = 0; rank < count; ++rank) {
      backends_.push_back(open_backend("reference", {.threads = 1}));
      pointers.push_back(backends_.back().get());
    }
    communicators_ = local_communicators(pointers, limit);
  }

  /// What each rank threw; empty for a rank that did not.
  std::vector<std::string> run(const std::function<void(Backend&, Communicator&)>& work) {
    std::vector<std::string> errors(backends_.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < backends_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          work(*backends_[rank], *communicators_[rank]);
        } catch (const Error& error) {
          errors[rank] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

/// A matrix of one rank with room beside its columns, so that a stride counts.
struct Matrix {
  Matrix(Backend& backend, std::int64_t rows, std::int64_t columns)
      : device(backend),
        buffer(backend.allocate(static_cast<std::size_t>(rows * (columns + 3)) * sizeof(float), "test")) {
    tensor = {buffer.get(), 0, DType::f32, rows, columns, columns + 3};
  }
  void set(const std::vector<float>& values) { device.upload(tensor, values.data()); }
  std::vector<float> get() const {
    std::vector<float> values(static_cast<std::size_t>(tensor.rows * tensor.columns));
    device.download(values.data(), tensor);
    return values;
  }

  Backend& device;
  std::unique_ptr<Buffer> buffer;
  Tensor tensor;
};

TEST(LocalCommunicator, SumsAreThoseInTheOrderOfTheRanks) {
  for (const int count : {1, 2, 3, 4}) {
    // Values whose sum depends on the order.
    const auto value = [](int rank, std::int64_t i) {
      return (rank % 2 == 0 ? 1e8f : -1e8f) + static_cast<float>(rank) * 0.37f + static_cast<float>(i);
    };
    std::vector<float> expected(12);
    for (std::int64_t i = 0; i < 12; ++i) {
      float sum = value(0, i);
      for (int rank = 1; rank < count; ++rank) sum += value(rank, i);
      expected[static_cast<std::size_t>(i)] = sum;
    }
    Ranks ranks(count);
    const auto errors = ranks.run([&](Backend& backend, Communicator& communicator) {
      Matrix x(backend, 3, 4);
      for (int round = 0; round < 20; ++round) {
        std::vector<float> own(12);
        for (std::int64_t i = 0; i < 12; ++i) own[static_cast<std::size_t>(i)] = value(communicator.rank(), i);
        x.set(own);
        communicator.all_reduce(x.tensor);
        if (x.get() != expected) throw Error("another sum");
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "") << count;
  }
}

TEST(LocalCommunicator, ScattersGathersAndBroadcasts) {
  Ranks ranks(3);
  const std::vector<IndexRange> rows = {{0, 2}, {2, 0}, {2, 3}}, columns = {{0, 1}, {1, 4}, {5, 2}};
  const auto errors = ranks.run([&](Backend& backend, Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    Matrix x(backend, 5, 2), part(backend, rows[rank].count, 2);
    std::vector<float> own(10);
    std::iota(own.begin(), own.end(), static_cast<float>(communicator.rank()));
    x.set(own);
    communicator.reduce_scatter(x.tensor, rows, part.tensor);
    const std::vector<float> sums = part.get();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (sums[i] != 3 * (2 * static_cast<float>(rows[rank].first) + static_cast<float>(i)) + 3)
        throw Error("reduce-scatter");
    }

    Matrix wide(backend, 2, 7);
    std::vector<float> whole(14);
    std::iota(whole.begin(), whole.end(), 100.0f);
    std::vector<float> seen(14, -1);
    for (std::int64_t row = 0; row < 2; ++row) {
      for (std::int64_t c = 0; c < columns[rank].count; ++c) {
        const auto at = static_cast<std::size_t>(row * 7 + columns[rank].first + c);
        seen[at] = whole[at];
      }
    }
    wide.set(seen);
    communicator.all_gather(wide.tensor, columns);
    if (wide.get() != whole) throw Error("all-gather");

    Matrix a(backend, 1, 3), b(backend, 2, 2);
    if (communicator.rank() == 1) {
      a.set({1, 2, 3});
      b.set({4, 5, 6, 7});
    }
    communicator.broadcast(std::vector{a.tensor, b.tensor}, 1);
    if (a.get() != std::vector<float>{1, 2, 3} || b.get() != std::vector<float>{4, 5, 6, 7}) throw Error("broadcast");
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(LocalCommunicator, ARankThatDoesNotComeIsNotWaitedForForEver) {
  Ranks ranks(3, milliseconds(50));
  const auto errors = ranks.run([&](Backend& backend, Communicator& communicator) {
    Matrix x(backend, 1, 1);
    if (communicator.rank() != 1) communicator.all_reduce(x.tensor);
  });
  EXPECT_THAT(errors[0], HasSubstr("waited 0.05 s at the all-reduce"));
  EXPECT_EQ(errors[1], "");
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(LocalCommunicator, ARankThatAbortsFreesTheOthers) {
  Ranks ranks(3);
  const auto errors = ranks.run([&](Backend& backend, Communicator& communicator) {
    Matrix x(backend, 1, 1);
    if (communicator.rank() == 2) return communicator.abort("the third gave up");
    communicator.all_reduce(x.tensor);
  });
  EXPECT_EQ(errors[0], "the third gave up");
  EXPECT_EQ(errors[1], "the third gave up");
}

}  // namespace
}  // namespace pergola
