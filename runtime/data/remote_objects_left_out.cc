// Replaces remote_objects.cc if Lockstep is built without Arrow (LOCKSTEP_CORE_ONLY).

#include "runtime/data/remote_objects.h"

namespace lockstep::data {

Result<std::unique_ptr<RemoteObjects>> OpenRemoteObjects(const api::DataSpec& spec) {
  return Error{ErrorCode::kUnsupported, "spec.training.data.path: \"" + spec.path +
                                            "\": this build has no object stores; use a folder"};
}

}  // namespace lockstep::data
