#include "operator/reconcile/owner.h"

#include "operator/kube/object.h"
#include "runtime/common/api/names.h"
#include "runtime/common/api/training_job.h"

namespace lockstep::reconcile {

std::optional<protocol::JobIdentity> JobOf(const Json& object) {
  const Json* controller = kube::ControllerOf(object);
  if (controller == nullptr || StringAt(*controller, {"apiVersion"}) != api::kApiVersion ||
      StringAt(*controller, {"kind"}) != api::kKind) {
    return std::nullopt;
  }
  return protocol::JobIdentity{kube::KeyOf(object).name_space, StringAt(*controller, {"name"}),
                               StringAt(*controller, {"uid"})};
}

std::string IndexOf(const protocol::JobIdentity& job) {
  return job.name_space + "/" + job.name + "/" + job.uid;
}

std::string IndexByJob(const Json& object) {
  const auto job = JobOf(object);
  return job ? IndexOf(*job) : "";
}

std::optional<protocol::JobIdentity> FalselyClaimedJob(const Json& object, const kube::Store& jobs) {
  const Json* controller = kube::ControllerOf(object);
  if (controller == nullptr) return std::nullopt;
  for (const kube::Object& found : jobs.ByIndex(StringAt(*controller, {"uid"}))) {
    const kube::ObjectKey key = kube::KeyOf(*found);
    protocol::JobIdentity job{key.name_space, key.name, kube::UidOf(*found)};
    if (JobOf(object) != job) return job;
  }
  return std::nullopt;
}

}  // namespace lockstep::reconcile
