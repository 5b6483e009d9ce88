#pragma once
// Logs objects with an owner reference to a job that they do not belong to (owner.h), which may be an attempt
// to reach a job of another namespace. It only logs: such objects are ignored everywhere. Any thread.

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

  // Logs one line for each uid of an object. `kind`: in the form of KeyOfKind.
  void Check(const std::string& kind, const Json& object);

 private:
  const kube::Store& jobs_;
  const Clock& clock_;
  Mutex mutex_;
  OncePerKey logged_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::reconcile
