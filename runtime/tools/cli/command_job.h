#pragma once
// The job for `lockstep run -- COMMAND`, which has no manifest. Pure.

#include <string>
#include <vector>

#include "runtime/common/base/json.h"

namespace lockstep::cli {

// A manifest without spec.training whose trainer runs `command` unchanged in `nproc` processes. Its name is
// that of the script, as in "train" for `python train.py`, or else of the program.
[[nodiscard]] Json JobOfCommand(const std::vector<std::string>& command, int nproc);

}  // namespace lockstep::cli
