#pragma once
// A command line of torchrun as one of `lockstep run`, so that a shell script works with the name exchanged:
//
//   torchrun --standalone --nproc-per-node 4 train.py --epochs 3
//   lockstep run --standalone --nproc-per-node 4 train.py --epochs 3
//
// The flags are those of torch.distributed.run (PyTorch 2.15), with "-" or "_" in their names. Pure.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/result.h"
#include "runtime/launch/run/machines.h"

namespace lockstep::cli {

// What this machine has, for --nproc-per-node auto, gpu and cpu.
struct MachineResources {
  int gpus = 0;
  int processors = 1;
};

struct TorchrunLine {
  std::vector<std::string> flags;    // of `lockstep run`
  std::vector<std::string> command;  // python3 -u, the script and its arguments
  launch::Environment machines;      // what launch::MachinesFrom reads, in addition to the environment
};

// `words`: what follows `lockstep run`. nullopt: no script that ends in .py, module (-m) or program (--no-python) follows
// the flags, so the line is not one of torchrun. An error names the flag, its value and what is possible instead.
[[nodiscard]] Result<std::optional<TorchrunLine>> FromTorchrun(const std::vector<std::string>& words,
                                                               const launch::Environment& environment,
                                                               const MachineResources& resources);

}  // namespace lockstep::cli
