#pragma once
// The newest complete checkpoint of a program of the user's own, in the folder that
// spec.observability.checkpointFolder names. Only its direct entries are looked at:
//
//   checkpoint-100/ with trainer_state.json   Hugging Face's Trainer, which writes that file last
//   a folder with .metadata                   torch.distributed.checkpoint, which writes that file last; also the
//                                             folder itself
//   *.pt, *.pth, *.ckpt, *.safetensors        a ZIP archive, as torch.save writes, with the record at its end; any
//                                             other file once it has settled
//
// The step is known where the name has it: checkpoint-100, step=100, global_step100, iter_100, 100.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/common/base/clock.h"

namespace lockstep::launch {

struct ProgramCheckpoint {
  std::string path;
  int64_t step = -1;  // -1: not known
  WallTime time{};    // when it was completed

  friend bool operator==(const ProgramCheckpoint&, const ProgramCheckpoint&) = default;
};

// `settled`: a file that was changed after this may still be being written. Reads at most 10,000 entries. Blocks as
// long as the file system does. Any thread.
[[nodiscard]] std::optional<ProgramCheckpoint> NewestCheckpoint(const std::string& folder, WallTime settled);

}  // namespace lockstep::launch
