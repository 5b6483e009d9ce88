#include "operator/rendezvous/certificate_keeper.h"

#include <optional>
#include <utility>

#include "runtime/common/base/log.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/base/time_text.h"
#include "runtime/common/http/address.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::chrono::seconds kPeriod{5};
constexpr std::chrono::seconds kPeriodOfTheFirst{1};  // until the first certificate is served
constexpr std::chrono::hours kRenewBefore{24 * 30};

std::vector<std::string> NamesFor(const CertificateOptions& options) {
  if (options.kept_by == SecretKeeper::kOperator) return DnsNamesOf(options.rendezvous_url);
  return {http::HostOfUrl(options.rendezvous_url)};
}

const ServerIdentity& NewestOf(const Certificates& certificates) {
  return certificates.next ? *certificates.next : *certificates.served;
}

}  // namespace

CertificateKeeper::CertificateKeeper(kube::KubeClient& client, const Clock& clock, CertificateOptions options,
                                     std::function<void()> on_change)
    : client_(client),
      clock_(clock),
      options_(std::move(options)),
      dns_names_(NamesFor(options_)),
      on_change_(std::move(on_change)) {}

void CertificateKeeper::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void CertificateKeeper::Run(const std::stop_token& stop) {
  do {
    Look();
  } while (PauseFor(WhyNoneIsServed().empty() ? kPeriod : kPeriodOfTheFirst, stop));
}

void CertificateKeeper::Look() {
  const auto secret = client_.Get(kube::kSecrets, options_.secret);
  const auto found = IdentityIn(secret);
  auto taken = Take(found);
  if (IsToBeRenewed(secret, found)) taken = Take(Renew(secret));
  Report(taken);
  ReportTrusted();
}

std::string CertificateKeeper::WhyNoneIsServed() const {
  const MutexLock lock(mutex_);
  if (certificates_.served) return "";
  return "no certificate yet: Secret " + options_.secret.ToString() +
         (problem_.empty() ? " has not been read" : ": " + problem_);
}

std::string CertificateKeeper::Trusted() const {
  const std::set<std::string> of_others = options_.of_others();
  const MutexLock lock(mutex_);
  return TrustedWith(certificates_, of_others);
}

std::string CertificateKeeper::ServedAuthorities() const {
  const MutexLock lock(mutex_);
  return certificates_.served ? certificates_.served->ca : "";
}

Result<ServerIdentity> CertificateKeeper::IdentityIn(const Result<Json>& secret) const {
  if (secret.ok()) return IdentityFromSecret(*secret, dns_names_, clock_.Now());
  if (secret.error().code == ErrorCode::kNotFound)
    return Error{ErrorCode::kNotFound, "the Secret does not exist"};
  return secret.error();
}

bool CertificateKeeper::IsToBeRenewed(const Result<Json>& secret, const Result<ServerIdentity>& found) const {
  if (options_.kept_by != SecretKeeper::kOperator) return false;
  if (found.ok()) return EndOf(*found) < clock_.Now() + kRenewBefore;
  return secret.ok() || secret.error().code == ErrorCode::kNotFound;
}

// If another operator wrote first, both serve what that one wrote.
Result<ServerIdentity> CertificateKeeper::Renew(const Result<Json>& secret) {
  LOCKSTEP_TRY(const ServerIdentity identity, MakeServerIdentity(dns_names_, clock_.Now()));
  Json object = SecretFrom(options_.secret, identity);
  if (secret.ok()) {
    object["metadata"]["resourceVersion"] = StringAt(*secret, {"metadata", "resourceVersion"});
    object["type"] = StringAt(*secret, {"type"});  // immutable
  }
  const auto written =
      secret.ok() ? client_.Replace(kube::kSecrets, object) : client_.Create(kube::kSecrets, object);
  if (written.ok()) {
    log::Info("made a certificate for the rendezvous", {{"secret", options_.secret.ToString()}});
    return identity;
  }
  const ErrorCode code = written.error().code;
  if (code != ErrorCode::kAlreadyExists && code != ErrorCode::kConflict) return written.error();
  return IdentityIn(client_.Get(kube::kSecrets, options_.secret));
}

// Even if no certificate in the Secret is usable now, an announced one is served at its time.
Result<void> CertificateKeeper::Take(const Result<ServerIdentity>& found) {
  Certificates before;
  {
    const MutexLock lock(mutex_);
    before = certificates_;
  }
  Result<void> result = found.ok() ? Result<void>() : found.error();
  if (!found.ok() && !before.next) return result;
  const Certificates after =
      Follow(before, found.ok() ? *found : *before.next, clock_.Now(), options_.overlap);
  if (after == before) return result;
  LOCKSTEP_TRY(newest_.Use(NewestOf(after).certificate, NewestOf(after).key));
  LOCKSTEP_TRY(served_.Use(after.served->certificate, after.served->key));
  {
    const MutexLock lock(mutex_);
    certificates_ = after;
  }
  LogChange(before, after);
  return result;
}

void CertificateKeeper::ReportTrusted() {
  const std::string trusted = Trusted();
  if (std::exchange(reported_, trusted) != trusted) on_change_();
}

void CertificateKeeper::LogChange(const Certificates& before, const Certificates& after) const {
  const std::string secret = options_.secret.ToString();
  if (after.served != before.served) {
    log::Info("serving a certificate",
              {{"secret", secret}, {"valid_until", FormatTime(EndOf(*after.served))}});
  }
  if (after.next && after.next != before.next) {
    log::Info("the authority has changed; workers trust both until the new certificate is served",
              {{"secret", secret}, {"served_from", FormatTime(after.next_from)}});
  }
}

// Logs each problem once.
void CertificateKeeper::Report(const Result<void>& taken) {
  const std::string problem = taken.ok() ? "" : taken.error().message;
  std::optional<ServerIdentity> served;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(problem_, problem) == problem || problem.empty()) return;
    served = certificates_.served;
  }
  const std::string secret = options_.secret.ToString();
  if (served) {
    log::Warning("cannot use the certificate of the Secret; the previous one is still served",
                 {{"secret", secret}, {"error", problem}, {"valid_until", FormatTime(EndOf(*served))}});
  } else {
    log::Info("waiting for the certificate of the rendezvous", {{"secret", secret}, {"reason", problem}});
  }
}

}  // namespace lockstep::rendezvous
