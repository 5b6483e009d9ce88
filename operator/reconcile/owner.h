#pragma once
// Which job an object belongs to. A uid alone is no proof: anyone can write an owner reference with the uid
// of a job of another namespace, and the API server accepts it. Pure.

#include <optional>
#include <string>

#include "operator/kube/store.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::reconcile {

// The job that controls the object: the owner reference has the API version and kind of a job, and the job is
// in the object's namespace, because owner references do not cross namespaces. Absent: no job does.
[[nodiscard]] std::optional<protocol::JobIdentity> JobOf(const Json& object);

// The key by which caches index the objects of a job; "" for objects that belong to none.
[[nodiscard]] std::string IndexOf(const protocol::JobIdentity& job);
[[nodiscard]] std::string IndexByJob(const Json& object);

// The job whose uid is in the object's controller reference although the object does not belong to it. `jobs`
// is indexed by uid.
[[nodiscard]] std::optional<protocol::JobIdentity> FalselyClaimedJob(const Json& object,
                                                                     const kube::Store& jobs);

}  // namespace lockstep::reconcile
