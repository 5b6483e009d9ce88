#include "runtime/data/loader.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <thread>

#include "tests/support/eventually.h"

namespace lockstep::data {
namespace {

using lockstep::testing::Eventually;

// The samples are their ids. Get of an id in `Hold` waits until it is released.
class Numbers final : public Dataset {
 public:
  [[nodiscard]] int64_t size() const override { return 1 << 20; }
  [[nodiscard]] int64_t classes() const override { return 1; }
  [[nodiscard]] std::vector<int64_t> sample_shape() const override { return {1}; }
  [[nodiscard]] Batch Get(std::span<const int64_t> ids) const override {
    std::unique_lock lock(mutex_);
    if (ids.front() < 0) throw std::bad_alloc();
    for (const int64_t id : ids) released_.wait(lock, [&] { return !held_.contains(id); });
    ++gets_;
    at::Tensor targets = torch::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong);
    return {targets.to(at::kFloat).unsqueeze(1), targets};
  }

  void Hold(int64_t id) {
    const std::lock_guard lock(mutex_);
    held_.insert(id);
  }
  void ReleaseAll() {
    const std::lock_guard lock(mutex_);
    held_.clear();
    released_.notify_all();
  }
  [[nodiscard]] int gets() const {
    const std::lock_guard lock(mutex_);
    return gets_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
  std::set<int64_t> held_;
  mutable int gets_ = 0;
};

// Positions are ids here.
Loader::Read From(const Numbers& numbers) {
  return [&numbers](const Draw& draw) {
    std::vector<int64_t> ids(static_cast<std::size_t>(draw.end - draw.begin));
    std::iota(ids.begin(), ids.end(), draw.begin);
    return numbers.Get(ids);
  };
}

// `count` batches of two samples: {first, first + 1}, {first + 2, …
Loader::Source Pairs(int64_t first, int64_t count) {
  return [=](int64_t n) -> std::optional<Draw> {
    if (n >= count) return std::nullopt;
    return Draw{.begin = first + 2 * n, .end = first + 2 * n + 2};
  };
}

int64_t FirstOf(const Result<Batch>& batch) { return batch.ok() ? batch->targets[0].item<int64_t>() : -1; }

TEST(Loader, GivesEveryBatchInOrderThenTheEnd) {
  const Numbers numbers;
  for (const int workers : {0, 1, 4}) {
    for (const int prefetch : {0, 1, 7}) {
      Loader loader(From(numbers), workers, prefetch);
      loader.Start(Pairs(100, 50));
      for (int64_t n = 0; n < 50; ++n) ASSERT_EQ(FirstOf(loader.Next({})), 100 + 2 * n);
      EXPECT_EQ(loader.Next({}).error().code, ErrorCode::kNotFound);
      EXPECT_EQ(loader.Next({}).error().code, ErrorCode::kNotFound) << "and stays at the end";
    }
  }
}

TEST(Loader, ReadsNothingAheadWithoutWorkers) {
  const Numbers numbers;
  Loader loader(From(numbers), 0, 3);
  loader.Start(Pairs(0, 1000));
  for (int n = 0; n < 4; ++n) {
    EXPECT_EQ(numbers.gets(), n);
    EXPECT_EQ(FirstOf(loader.Next({})), 2 * n);
  }
}

TEST(Loader, KeepsTheOrderWhereAWorkerIsSlow) {
  Numbers numbers;
  numbers.Hold(0);
  Loader loader(From(numbers), 3, 3);
  loader.Start(Pairs(0, 3));
  ASSERT_TRUE(Eventually([&] { return numbers.gets() == 2; })) << "the batches behind it are made meanwhile";
  numbers.ReleaseAll();
  for (int64_t n = 0; n < 3; ++n) EXPECT_EQ(FirstOf(loader.Next({})), 2 * n);
}

TEST(Loader, MakesNoMoreReadyThanAsked) {
  const Numbers numbers;
  Loader loader(From(numbers), 2, 3);
  loader.Start(Pairs(0, 1000));
  ASSERT_TRUE(Eventually([&] { return numbers.gets() == 3; }));
  EXPECT_EQ(FirstOf(loader.Next({})), 0);
  ASSERT_TRUE(Eventually([&] { return numbers.gets() == 4; }));
  EXPECT_EQ(FirstOf(loader.Next({})), 2);
  EXPECT_LE(numbers.gets(), 5);
}

TEST(Loader, AnEmptyPlanIsAtItsEnd) {
  const Numbers numbers;
  Loader loader(From(numbers), 2, 2);
  loader.Start(Pairs(0, 0));
  EXPECT_EQ(loader.Next({}).error().code, ErrorCode::kNotFound);
}

TEST(Loader, ForgetsTheFormerPlanWhenStartedAgain) {
  const Numbers numbers;
  Loader loader(From(numbers), 3, 4);
  for (int64_t round = 0; round < 200; ++round) {
    loader.Start(Pairs(1000 * round, 5));
    const int64_t taken = round % 7;
    for (int64_t n = 0; n < taken; ++n) {
      const auto batch = loader.Next({});
      ASSERT_EQ(FirstOf(batch), n < 5 ? 1000 * round + 2 * n : -1) << "round " << round << ", batch " << n;
    }
  }
}

TEST(Loader, DropsWhatASlowWorkerMakesOfTheFormerPlan) {
  Numbers numbers;
  numbers.Hold(0);
  Loader loader(From(numbers), 2, 2);
  loader.Start(Pairs(0, 2));
  ASSERT_TRUE(Eventually([&] { return numbers.gets() == 1; }));
  loader.Start(Pairs(500, 2));
  EXPECT_EQ(FirstOf(loader.Next({})), 500);
  numbers.ReleaseAll();
  EXPECT_EQ(FirstOf(loader.Next({})), 502);
  EXPECT_EQ(loader.Next({}).error().code, ErrorCode::kNotFound);
}

TEST(Loader, StopsWaitingWhenAsked) {
  Numbers numbers;
  numbers.Hold(0);
  Loader loader(From(numbers), 1, 1);
  loader.Start(Pairs(0, 2));
  std::stop_source stop;
  std::jthread asker([&] { stop.request_stop(); });
  EXPECT_EQ(loader.Next(stop.get_token()).error().code, ErrorCode::kCancelled);
  numbers.ReleaseAll();
  EXPECT_EQ(FirstOf(loader.Next({})), 0) << "the batch is not lost";
}

TEST(Loader, EndsInTheMiddleOfAPlan) {
  const Numbers numbers;
  for (int i = 0; i < 50; ++i) {
    Loader loader(From(numbers), 3, 4);
    if (i % 2 == 0) loader.Start(Pairs(0, 1000));
    if (i % 4 == 0) (void)loader.Next({});
  }
}

TEST(Loader, PassesOnWhatTheDataSetThrewInItsPlace) {
  const Numbers numbers;
  for (const int workers : {0, 1}) {
    Loader loader(From(numbers), workers, 2);
    loader.Start([](int64_t n) -> std::optional<Draw> { return Draw{.begin = 1 - n, .end = 2 - n}; });
    EXPECT_TRUE(loader.Next({}).ok());
    EXPECT_TRUE(loader.Next({}).ok());
    EXPECT_THROW((void)loader.Next({}), std::bad_alloc);
    loader.Start(Pairs(0, 1));
    EXPECT_TRUE(loader.Next({}).ok()) << "it goes on with another source";
  }
}

}  // namespace
}  // namespace lockstep::data
