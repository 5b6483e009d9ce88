#include "operator/rendezvous/token_identity.h"

#include <algorithm>

#include "operator/reconcile/owner.h"
#include "runtime/common/api/names.h"
#include "runtime/common/base/strings.h"

namespace lockstep::rendezvous {
namespace {

Error Unauthorized(std::string why) { return {ErrorCode::kUnauthorized, "token refused: " + std::move(why)}; }
Error Forbidden(std::string why) { return {ErrorCode::kForbidden, std::move(why)}; }

std::string Extra(const Json& review, const char* key) {
  const Json* values = FindJson(review, {"status", "user", "extra", key});
  return values != nullptr && values->is_array() && !values->empty() && values->front().is_string()
             ? values->front().get<std::string>()
             : "";
}

}  // namespace

Json TokenReviewFor(const std::string& token) {
  return {{"spec", {{"token", token}, {"audiences", Json::array({kAudience})}}}};
}

Result<TokenIdentity> IdentityFromReview(const Json& review) {
  if (!BoolAt(review, {"status", "authenticated"})) {
    return Unauthorized(StringAt(review, {"status", "error"}, "not authenticated"));
  }
  const Json* audiences = FindJson(review, {"status", "audiences"});
  if (audiences == nullptr ||
      std::find(audiences->begin(), audiences->end(), kAudience) == audiences->end()) {
    return Unauthorized("it is not for the audience " + std::string(kAudience));
  }
  const std::vector<std::string> user = Split(StringAt(review, {"status", "user", "username"}), ':');
  if (user.size() != 4 || user[0] != "system" || user[1] != "serviceaccount") {
    return Unauthorized("it does not belong to a service account");
  }
  TokenIdentity identity{.name_space = user[2],
                         .pod = Extra(review, "authentication.kubernetes.io/pod-name"),
                         .pod_uid = Extra(review, "authentication.kubernetes.io/pod-uid")};
  if (identity.pod.empty() || identity.pod_uid.empty()) return Unauthorized("it is bound to no pod");
  return identity;
}

Result<void> CheckMember(const TokenIdentity& identity, const protocol::JobIdentity& job,
                         const protocol::Member& member, const kube::Object& pod) {
  if (identity.pod != member.pod || identity.pod_uid != member.pod_uid) {
    return Forbidden("the token belongs to pod " + identity.pod + ", not to " + member.pod);
  }
  if (identity.name_space != job.name_space) {
    return Forbidden("the token is of namespace " + identity.name_space + ", the job of " + job.name_space);
  }
  if (pod == nullptr || kube::UidOf(*pod) != member.pod_uid)
    return Forbidden("pod " + member.pod + " is not known");
  if (reconcile::JobOf(*pod) != job) {
    return Forbidden("pod " + member.pod + " does not belong to job " + job.name);
  }
  if (StringAt(*pod, {"metadata", "labels", api::kLabelSlot}) != std::to_string(member.slot)) {
    return Forbidden("pod " + member.pod + " has another slot than " + std::to_string(member.slot));
  }
  return {};
}

}  // namespace lockstep::rendezvous
