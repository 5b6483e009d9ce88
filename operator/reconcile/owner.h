#pragma once
// Which job an object belongs to. A uid alone proves nothing: everybody can write an owner reference with the
// uid of a job elsewhere, and the API server accepts it. Pure.

#include <optional>
#include <string>

#include "operator/kube/store.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::reconcile {

// The job that controls the object: the owner reference must have our API version and kind, and the job is in
// the object's namespace, for an owner reference leads to no other. Absent: none does.
[[nodiscard]] std::optional<protocol::JobIdentity> JobOf(const Json& object);

// By what the caches index the objects of jobs, "" for those that belong to none.
[[nodiscard]] std::string IndexOf(const protocol::JobIdentity& job);
[[nodiscard]] std::string IndexByJob(const Json& object);

// The job that an object does not belong to though its controller has the job's uid. `jobs` is indexed by uid.
[[nodiscard]] std::optional<protocol::JobIdentity> FalselyClaimedJob(const Json& object,
                                                                     const kube::Store& jobs);

}  // namespace lockstep::reconcile
