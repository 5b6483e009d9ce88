#include <iostream>

#include "runtime/checkpoint/job_removal.h"
#include "runtime/checkpoint/ownership.h"
#include "runtime/common/base/clock.h"
#include "runtime/tools/checkpoint_tool/commands.h"
#include "runtime/tools/checkpoint_tool/text.h"

namespace lockstep::checkpoint_tool {
namespace {

Result<checkpoint::JobRemoval> CheckAndRemove(const Place& place, const RemoveJobArguments& arguments) {
  if (!arguments.force) {
    LOCKSTEP_TRY(const bool runs, checkpoint::SeemsToRun(place.store, arguments.uid, SystemClock().Now()));
    if (runs)
      return Error{ErrorCode::kConflict, "job " + arguments.uid + " runs, or was killed less than " +
                                             std::to_string(checkpoint::kLease.count()) +
                                             " s ago; what it stored is removed with --force only"};
  }
  return checkpoint::RemoveAllOfJob(place.store, arguments.uid);
}

}  // namespace

int RemoveJob(const Place& place, const RemoveJobArguments& arguments) {
  const auto removed = CheckAndRemove(place, arguments);
  if (!removed.ok()) return Refuse(removed.error());
  std::cout << "removed what job " << Printable(arguments.uid) << " stored below " << Printable(place.uri)
            << ": " << removed->checkpoints << " checkpoints, " << removed->objects << " objects\n";
  for (const std::string& what : removed->left) std::cout << "left: " << Printable(what) << "\n";
  return kDone;
}

}  // namespace lockstep::checkpoint_tool
