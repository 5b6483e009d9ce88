#pragma once
// Logs objects that claim to belong to a job and do not (owner.h): somebody may be trying to reach a job of
// another namespace. Nothing else follows, since such an object counts nowhere. Any thread.

#include <string>

#include "operator/kube/store.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/once_per_key.h"

namespace lockstep::reconcile {

class FalseOwners {
 public:
  // `jobs` is indexed by uid.
  FalseOwners(const kube::Store& jobs, const Clock& clock) : jobs_(jobs), clock_(clock) {}

  // One line for each uid of an object. `kind`: as KeyOfKind writes it.
  void Check(const std::string& kind, const Json& object);

 private:
  const kube::Store& jobs_;
  const Clock& clock_;
  Mutex mutex_;
  OncePerKey logged_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::reconcile
