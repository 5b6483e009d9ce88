#include "runtime/train/local_sgd/average.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/forked_ranks.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

TEST(AverageInPlace, WeighsTheRanksInEachType) {
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 3);
    REQUIRE(communicator.ok());
    const double weights[] = {0.5, 0.25, 0.25};
    const at::Tensor values = at::full({2, 3}, 4.0 * rank, at::kFloat);
    const at::Tensor origin = at::full({5}, 100.0, at::kDouble);
    const at::Tensor changed = at::full({5}, 100.0 + 8 * rank, at::kDouble);
    const at::Tensor half = at::full({4}, 2.0 * rank, at::kHalf);
    const at::Tensor count = at::full({}, 7 + rank, at::kLong);
    const at::Tensor flag = at::full({2}, rank == 0, at::kBool);
    const std::vector<ToAverage> all = {{values, {}}, {changed, origin}, {half, {}}, {count, {}}, {flag, {}}};
    REQUIRE(AverageInPlace(**communicator, all, weights[rank]).ok());
    REQUIRE(values.eq(3.0).all().item<bool>());     // 0.25 * 4 + 0.25 * 8
    REQUIRE(changed.eq(106.0).all().item<bool>());  // 100 + 0.25 * 8 + 0.25 * 16
    REQUIRE(half.eq(1.5).all().item<bool>() && half.scalar_type() == at::kHalf);
    REQUIRE(count.item<int64_t>() == 7 && flag.all().item<bool>());
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// More elements than fit into one sum, in tensors of that size and smaller ones.
TEST(AverageInPlace, SumsManyTensorsInPieces) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    std::vector<ToAverage> all;
    for (const int64_t size : {3, 5'000'000, 5, 2'200'000, 2'200'000, 1}) {
      all.push_back({at::full({size}, 2.0 * rank + static_cast<double>(all.size()), at::kFloat), {}});
    }
    REQUIRE(AverageInPlace(**communicator, all, 0.5).ok());
    for (std::size_t i = 0; i < all.size(); ++i) {
      REQUIRE(all[i].tensor.eq(1.0 + static_cast<double>(i)).all().item<bool>());
    }
    return 0;
  });
  ExpectAllSucceed(ranks);
}

}  // namespace
}  // namespace lockstep::train
