#pragma once
// Whose token is it, and may that pod speak for this member of this job? Pure.

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
// kUnauthorized where the review says that the token is invalid, of another audience, or bound to no pod.
[[nodiscard]] Result<TokenIdentity> IdentityFromReview(const Json& review);

// kForbidden unless the token's pod is the member, and `pod` (as cached) is a worker of the job by its owner
// reference and namespace.
[[nodiscard]] Result<void> CheckMember(const TokenIdentity& identity, const protocol::JobIdentity& job,
                                       const protocol::Member& member, const kube::Object& pod);

}  // namespace lockstep::rendezvous
