#include "operator/rendezvous/token_review.h"

#include <utility>

namespace lockstep::rendezvous {
namespace {

constexpr auto kRemember = std::chrono::seconds(60);
constexpr std::string_view kUserPrefix = "system:serviceaccount:";

std::string FirstExtra(const Json& review, std::string_view key) {
  const Json* values = FindJson(review, {"status", "user", "extra", key});
  return values != nullptr && values->is_array() && !values->empty() && values->front().is_string()
             ? values->front().get<std::string>()
             : "";
}

bool HasAudience(const Json& review) {
  const Json* audiences = FindJson(review, {"status", "audiences"});
  if (audiences == nullptr || !audiences->is_array()) return false;
  for (const Json& audience : *audiences) {
    if (audience == kAudience) return true;
  }
  return false;
}

}  // namespace

Result<TokenBearer> BearerOf(const Json& review) {
  if (!BoolAt(review, {"status", "authenticated"}) || !HasAudience(review)) {
    return Error{ErrorCode::kUnauthorized,
                 "the API server does not accept this token for the audience lockstep"};
  }
  const std::string user = StringAt(review, {"status", "user", "username"});
  TokenBearer bearer{.pod = FirstExtra(review, "authentication.kubernetes.io/pod-name"),
                     .pod_uid = FirstExtra(review, "authentication.kubernetes.io/pod-uid")};
  if (!user.starts_with(kUserPrefix) || bearer.pod.empty() || bearer.pod_uid.empty()) {
    return Error{ErrorCode::kUnauthorized, "the token is not bound to a pod"};
  }
  const std::string rest = user.substr(kUserPrefix.size());
  bearer.name_space = rest.substr(0, rest.find(':'));
  return bearer;
}

TokenReviewer::TokenReviewer(kube::KubeWriter& client, PodBelongs pod_belongs, const Clock& clock)
    : client_(client),
      pod_belongs_(std::move(pod_belongs)),
      clock_(clock),
      thread_([this](std::stop_token stop) { Run(stop); }) {}

Authorizer TokenReviewer::MakeAuthorizer() {
  return [this](const std::string& token, const protocol::JobIdentity& job, const protocol::Member& member,
                std::function<void(Result<void>)> done) {
    questions_.Push({token, job, member, std::move(done)});
  };
}

void TokenReviewer::Run(std::stop_token stop) {
  while (auto question = questions_.PopUntil(std::chrono::steady_clock::time_point::max(), stop)) {
    const Result<TokenBearer> bearer = Review(question->token);
    question->done(bearer.ok() ? Decide(*bearer, *question) : Result<void>(bearer.error()));
  }
}

Result<TokenBearer> TokenReviewer::Review(const std::string& token) {
  const SteadyTime now = clock_.Steady();
  std::erase_if(remembered_, [now](const auto& entry) { return entry.second.until < now; });
  if (const auto found = remembered_.find(token); found != remembered_.end()) return found->second.bearer;
  if (token.empty()) return Error{ErrorCode::kUnauthorized, "no bearer token"};
  LOCKSTEP_TRY(const Json review,
               client_.Create(kube::kTokenReviews,
                              {{"spec", {{"token", token}, {"audiences", Json::array({kAudience})}}}}));
  LOCKSTEP_TRY(TokenBearer bearer, BearerOf(review));
  remembered_[token] = {bearer, now + kRemember};
  return bearer;
}

Result<void> TokenReviewer::Decide(const TokenBearer& bearer, const Question& question) const {
  const bool is_member = bearer.name_space == question.job.name_space && bearer.pod == question.member.pod &&
                         bearer.pod_uid == question.member.pod_uid;
  if (!is_member) return Error{ErrorCode::kForbidden, "the token belongs to another pod than the message"};
  if (!pod_belongs_({bearer.name_space, bearer.pod}, bearer.pod_uid, question.job.uid)) {
    return Error{ErrorCode::kForbidden, "the pod does not belong to this job"};
  }
  return {};
}

}  // namespace lockstep::rendezvous
