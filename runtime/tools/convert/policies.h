#pragma once
// The part of a conversion that says what becomes of the job: when it fails, succeeds, waits and ends.

#include "runtime/tools/convert/conversion.h"

namespace lockstep::convert {

// restartPolicy, backoffLimit and maxRestarts.
void ConvertFailures(Conversion& job);
// runPolicy without its schedulingPolicy.
void ConvertRunPolicy(Conversion& job);
// runPolicy.schedulingPolicy.
void ConvertScheduling(Conversion& job);
// Which pod's end completes the job.
void ConvertSuccess(Conversion& job);

}  // namespace lockstep::convert
