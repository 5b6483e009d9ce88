#include "runtime/storage/s3_credentials.h"

#include <utility>

#include "runtime/common/base/file.h"

namespace lockstep::storage {
namespace {

constexpr const char* kWebIdentity = "AWS_WEB_IDENTITY_TOKEN_FILE";
// A denial this long after the source was away still counts as its outage: another thread may have sent the
// request before the keys came back.
constexpr Seconds kJustNow(30);

std::string NamedSource() {
  for (const char* name :
       {kWebIdentity, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"}) {
    if (!EnvOr(name, "").empty()) return name;
  }
  return "";
}

}  // namespace

S3Credentials::S3Credentials(const S3Settings& settings)
    : are_given_(!settings.access_key.empty()), named_source_(are_given_ ? "" : NamedSource()) {
  if (are_given_) {
    options_.ConfigureAccessKey(settings.access_key, settings.secret_key, settings.session_token);
  } else if (named_source_ == kWebIdentity) {
    options_.ConfigureAssumeRoleWithWebIdentityCredentials();
  } else {
    options_.ConfigureDefaultCredentials();
  }
}

Result<std::shared_ptr<S3Credentials>> S3Credentials::Find(const S3Settings& settings) {
  std::shared_ptr<S3Credentials> credentials(new S3Credentials(settings));
  const bool may_come = credentials->are_given_ || !credentials->named_source_.empty();
  if (!may_come && !credentials->AreThere()) return LacksCredentials(settings, "needs credentials");
  return credentials;
}

bool S3Credentials::AreThere() {
  if (are_given_ || !options_.GetAccessKey().empty()) return true;
  last_away_ = clock_.Steady();
  return false;
}

bool S3Credentials::HaveComeBack() { return !are_given_ && AreThere(); }

bool S3Credentials::AreAway() {
  if (are_given_) return false;
  return !AreThere() || Seconds(clock_.Steady() - last_away_.load()) < kJustNow;
}

std::string S3Credentials::source() const {
  return named_source_.empty() ? "a profile or the role of the machine" : named_source_;
}

Result<S3Settings> S3Credentials::Complete(S3Settings settings) {
  if (are_given_) return settings;
  if (!AreThere()) {
    return Error{ErrorCode::kUnavailable,
                 settings.use.field + ": no valid credentials at this time from " + source()};
  }
  settings.access_key = options_.GetAccessKey();
  settings.secret_key = options_.GetSecretKey();
  settings.session_token = options_.GetSessionToken();
  return settings;
}

}  // namespace lockstep::storage
