#include "runtime/checkpoint/object_store.h"

#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"

namespace lockstep::checkpoint {

std::string FieldOf(StoreUser user) { return user == StoreUser::kJob ? "spec.checkpoint.uri" : "URI"; }

Result<void> CheckWritable(ObjectStore& store) {
  // Random, because the ranks of a job open the store concurrently.
  const std::string probe = std::string(kProbePrefix) + RandomHex(8);
  Result<void> done = store.Put(probe, "Lockstep may write here.\n");
  if (done.ok()) done = store.Delete(probe);
  if (done.ok() || !done.error().IsTransient()) return done;
  log::Warning("the checkpoint store does not answer; ranks with peers train without it meanwhile",
               {{"uri", store.UriOf("")}, {"error", done.error().message}});
  return {};
}

}  // namespace lockstep::checkpoint
