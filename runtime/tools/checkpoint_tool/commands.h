#pragma once
// The verbs of `lockstep checkpoint`, one file each. Each prints for people and returns the exit code of the
// process. One thread.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/checkpoint/object_store.h"
#include "runtime/checkpoint/stored_checkpoints.h"
#include "runtime/common/base/error.h"

namespace lockstep::checkpoint_tool {

enum ExitCode : int {
  kDone = 0,
  kNotSound = 1,      // damaged, not there, or a removal that was refused
  kBadArguments = 2,  // also: FILE cannot be written
  kStoreFailed = 4,   // unreachable, or access denied
};

struct Place {
  checkpoint::ObjectStore& store;
  std::string uri;  // as the user wrote it, for messages
};

[[nodiscard]] int List(const Place& place, bool as_json);

// Of one step, or of every one.
[[nodiscard]] int Verify(const Place& place, std::optional<int64_t> step);

struct ExportArguments {
  std::optional<int64_t> step;  // default: the newest
  std::string file;
  bool weights_only = false;
  bool average = false;  // the averages in place of the weights, and nothing of the optimizer
};
[[nodiscard]] int Export(const Place& place, const ExportArguments& arguments);

struct RemoveArguments {
  int64_t step = 0;
  bool force = false;
};
[[nodiscard]] int Remove(const Place& place, const RemoveArguments& arguments);

// All that the job of this uid stored.
struct RemoveJobArguments {
  std::string uid;
  bool force = false;
};
[[nodiscard]] int RemoveJob(const Place& place, const RemoveJobArguments& arguments);

// Says what is wrong; the exit code follows from the error's.
[[nodiscard]] int Refuse(const Error& error);

}  // namespace lockstep::checkpoint_tool
