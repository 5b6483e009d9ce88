#include "runtime/python/c_interface.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

#include "runtime/data/sampler.h"

namespace lockstep::python {
namespace {

lockstep_plan AnyPlan() {
  return {.size = *rc::gen::inRange<int64_t>(1, 400),
          .global_batch = *rc::gen::inRange<int64_t>(1, 90),
          .seed = *rc::gen::arbitrary<uint64_t>(),
          .shuffle = *rc::gen::arbitrary<bool>() ? 1 : 0,
          .drop_last = *rc::gen::arbitrary<bool>() ? 1 : 0};
}

std::vector<int64_t> IdsOf(const lockstep_plan& plan, int64_t step, int64_t begin, int64_t end) {
  std::vector<int64_t> ids(static_cast<std::size_t>(end - begin));
  lockstep_sample_ids(&plan, step, begin, end, ids.data());
  return ids;
}

TEST(CInterface, SharesOfAllRanksAreTheStepOfTheSampler) {
  rc::check([] {
    const lockstep_plan plan = AnyPlan();
    const data::SamplePlan sampler({.size = plan.size,
                                    .global_batch = plan.global_batch,
                                    .seed = plan.seed,
                                    .shuffle = plan.shuffle != 0,
                                    .drop_last = plan.drop_last != 0});
    RC_ASSERT(lockstep_steps_per_epoch(&plan) == sampler.steps_per_epoch());
    const auto step = *rc::gen::inRange<int64_t>(0, 3 * sampler.steps_per_epoch() + 1);
    const int64_t count = lockstep_step_size(&plan, step);
    const auto world = *rc::gen::inRange<int64_t>(1, 12);
    std::vector<int64_t> all;
    for (int64_t rank = 0; rank < world; ++rank) {
      int64_t begin = -1;
      int64_t end = -1;
      lockstep_share(count, rank, world, &begin, &end);
      const std::vector<int64_t> ids = IdsOf(plan, step, begin, end);
      all.insert(all.end(), ids.begin(), ids.end());
    }
    RC_ASSERT(all == sampler.Ids(step, 0, count));
  });
}

TEST(CInterface, ARankWithoutSamplesGetsNone) {
  int64_t begin = -1;
  int64_t end = -1;
  lockstep_share(2, 7, 8, &begin, &end);
  EXPECT_EQ(begin, end);
}

TEST(CInterface, KnowsTheMemoryThatIsLeft) { EXPECT_GT(lockstep_available_memory(), 0); }

}  // namespace
}  // namespace lockstep::python
