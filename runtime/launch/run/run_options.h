#pragma once
// What `lockstep run` is to do, on each of its machines.

#include <string>

#include "runtime/common/api/training_job.h"
#include "runtime/launch/run/machines.h"

namespace lockstep::launch {

struct RunOptions {
  api::TrainingJob job;      // validated
  std::string folder;        // worker logs, config and, by default, checkpoints
  std::string program;       // path of `lockstep`, started as `lockstep worker`
  Machines machines{};       // count 1: all replicas run on this one
  bool prefix_ranks = true;  // prefix the lines of a program with several ranks
};

}  // namespace lockstep::launch
