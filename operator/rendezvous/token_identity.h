#pragma once
// Which pod a token belongs to, and whether that pod may act as this member of this job. Pure.

#include <string>

#include "operator/kube/store.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"
#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::rendezvous {

inline constexpr const char* kAudience = "lockstep";

// The pod that a bound service-account token belongs to.
struct TokenIdentity {
  std::string name_space;
  std::string pod;
  std::string pod_uid;
};

[[nodiscard]] Json TokenReviewFor(const std::string& token);
// kUnauthorized: the review says that the token is invalid, has another audience, or is bound to no pod.
[[nodiscard]] Result<TokenIdentity> IdentityFromReview(const Json& review);

// kForbidden unless the token's pod is the member, and `pod` (from the cache) is a worker of the job by its
// owner reference and namespace.
[[nodiscard]] Result<void> CheckMember(const TokenIdentity& identity, const protocol::JobIdentity& job,
                                       const protocol::Member& member, const kube::Object& pod);

}  // namespace lockstep::rendezvous
