#include "operator/reconcile/false_owners.h"

#include "operator/kube/object.h"
#include "operator/reconcile/owner.h"
#include "runtime/common/base/log.h"

namespace lockstep::reconcile {

void FalseOwners::Check(const std::string& kind, const Json& object) {
  const auto job = FalselyClaimedJob(object, jobs_);
  if (!job) return;
  const std::string uid = kube::UidOf(object);
  {
    const MutexLock lock(mutex_);
    if (!logged_.IsFirst(uid, clock_.Steady())) return;
  }
  const Json* controller = kube::ControllerOf(object);
  log::Warning("ignored an object whose owner reference has the uid of a job that it does not belong to",
               {{"kind", kind},
                {"object", kube::KeyOf(object).ToString()},
                {"object_uid", uid},
                {"owner", StringAt(*controller, {"apiVersion"}) + " " + StringAt(*controller, {"kind"}) +
                              " " + StringAt(*controller, {"name"})},
                {"job", job->name_space + "/" + job->name},
                {"job_uid", job->uid}});
}

}  // namespace lockstep::reconcile
