#pragma once
// The C++ parts of the Python package `lockstep`, for ctypes (lockstep/library.py): a plain C interface, so that one
// library serves every Python. Any thread. The caller checks the arguments.

#include <cstdint>

#define LOCKSTEP_EXPORT __attribute__((visibility("default")))

extern "C" {

// As data::SamplePlanOptions (runtime/data/sampler.h). size, global_batch > 0.
struct lockstep_plan {
  int64_t size;
  int64_t global_batch;
  uint64_t seed;
  int32_t shuffle;
  int32_t drop_last;
};

LOCKSTEP_EXPORT int64_t lockstep_steps_per_epoch(const lockstep_plan* plan);
// Samples of the step over all ranks.
LOCKSTEP_EXPORT int64_t lockstep_step_size(const lockstep_plan* plan, int64_t step);
// The rank's share of `count` positions: [*begin, *end).
LOCKSTEP_EXPORT void lockstep_share(int64_t count, int64_t rank, int64_t world, int64_t* begin, int64_t* end);
// Bytes that this process may still take, of the machine and of its container; -1: not known.
LOCKSTEP_EXPORT double lockstep_available_memory();
// Of gs://… and abfs://…: account, credentials and endpoint as JSON, from the URI and the environment
// (runtime/storage/gcs_settings.h, azure_settings.h); {"error": …} says what is wrong with them. Valid until the thread's
// next call.
LOCKSTEP_EXPORT const char* lockstep_store_settings(const char* uri);
// Into `ids`: the end - begin samples at these positions of the step.
LOCKSTEP_EXPORT void lockstep_sample_ids(const lockstep_plan* plan, int64_t step, int64_t begin, int64_t end,
                                         int64_t* ids);
}
