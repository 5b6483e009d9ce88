#pragma once
// The job that `lockstep run -- COMMAND` runs, for which nobody wrote a manifest. Pure.

#include <string>
#include <vector>

#include "runtime/common/base/json.h"

namespace lockstep::cli {

// A manifest without spec.training whose trainer runs `command`, word for word, in `nproc` processes. Its
// name is that of the script, as in "train" for `python train.py`, or else of the program.
[[nodiscard]] Json JobOfCommand(const std::vector<std::string>& command, int nproc);

}  // namespace lockstep::cli
