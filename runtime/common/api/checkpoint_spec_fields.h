#pragma once
// The fields of spec.checkpoint with their limits; see fields.h.

#include "runtime/common/api/checkpoint_spec.h"
#include "runtime/common/base/fields.h"

namespace lockstep::api {

[[nodiscard]] Json IntOrWordToJson(const ResumeFrom& resume);
[[nodiscard]] std::string IntOrWordFromJson(const Json& json, ResumeFrom& resume);

template <typename A>
void Describe(A& fields, Of<A, SecretReference>& spec) {
  fields.Required("name", spec.name, {.max_length = 253});
}

template <typename A>
void Describe(A& fields, Of<A, CheckpointSpec>& spec) {
  fields.Required("uri", spec.uri, {.max_length = 1024});
  fields.Field("secretRef", spec.secret_ref);
  fields.Field("interval", spec.interval);
  fields.Field("meanTimeBetweenFailuresSeconds", spec.mean_time_between_failures_seconds,
               {.min = 1, .max = 1e9});
  fields.Field("intervalSteps", spec.interval_steps, {.min = 1, .max = 1e9});
  fields.Field("intervalSeconds", spec.interval_seconds, {.min = 1, .max = 1e9});
  fields.Field("keepLast", spec.keep_last, {.min = 1, .max = 10000});
  fields.Field("keepEverySteps", spec.keep_every_steps, {.min = 1, .max = 1e9});
  fields.Field("uploadBytesPerSecond", spec.upload_bytes_per_second, {.min = 1000, .max = 1e12});
  fields.Field("deleteWithJob", spec.delete_with_job);
  fields.Field("resume", spec.resume);
  fields.Field("restore", spec.restore);
  fields.Field("onTermination", spec.on_termination);
  fields.Field("gracePeriodSeconds", spec.grace_period_seconds, {.min = 0, .max = 86400});
}

}  // namespace lockstep::api
