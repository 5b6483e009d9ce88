#include "runtime/python/c_interface.h"

#include <algorithm>
#include <vector>

#include "runtime/common/base/available_memory.h"
#include "runtime/data/sampler.h"
#include "runtime/data/slice.h"

namespace lockstep::python {
namespace {

data::SamplePlan PlanOf(const lockstep_plan& plan) {
  return data::SamplePlan({.size = plan.size,
                           .global_batch = plan.global_batch,
                           .seed = plan.seed,
                           .shuffle = plan.shuffle != 0,
                           .drop_last = plan.drop_last != 0});
}

}  // namespace
}  // namespace lockstep::python

using lockstep::python::PlanOf;

int64_t lockstep_steps_per_epoch(const lockstep_plan* plan) { return PlanOf(*plan).steps_per_epoch(); }

int64_t lockstep_step_size(const lockstep_plan* plan, int64_t step) { return PlanOf(*plan).CountOf(step); }

void lockstep_share(int64_t count, int64_t rank, int64_t world, int64_t* begin, int64_t* end) {
  const lockstep::data::Slice share = lockstep::data::SliceOf(count, rank, world);
  *begin = share.begin;
  *end = share.end;
}

double lockstep_available_memory() { return lockstep::AvailableBytes().value_or(-1); }

void lockstep_sample_ids(const lockstep_plan* plan, int64_t step, int64_t begin, int64_t end, int64_t* ids) {
  const std::vector<int64_t> found = PlanOf(*plan).Ids(step, begin, end);
  std::copy(found.begin(), found.end(), ids);
}
