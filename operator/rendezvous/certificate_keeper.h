#pragma once
// Reads the Secret with the certificate of the rendezvous every few seconds, and updates which certificate is
// served and which authorities are trusted (certificates.h). Every replica of the operator runs one from its
// start, so that a new leader serves the same certificate as the one before it. It has a thread of its own;
// the other methods may be called from any thread. Failures are retried without limit.

#include <functional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "operator/kube/client.h"
#include "operator/rendezvous/certificates.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/http/server.h"

namespace lockstep::rendezvous {

enum class SecretKeeper {
  kOperator,  // created if it is missing or unusable, replaced a month before it expires
  kOther,     // managed by others, such as cert-manager: only read
};

struct CertificateOptions {
  kube::ObjectKey secret;
  SecretKeeper kept_by = SecretKeeper::kOperator;
  std::string rendezvous_url;  // the URL by which workers reach the rendezvous
  Milliseconds overlap{};      // see Follow
  // The authorities of the certificates that other replicas serve. Any thread.
  std::function<std::set<std::string>()> of_others = [] { return std::set<std::string>(); };
};

class CertificateKeeper {
 public:
  // `on_change` is called on the thread that calls Look, after Trusted() has changed.
  CertificateKeeper(kube::KubeClient& client, const Clock& clock, CertificateOptions options,
                    std::function<void()> on_change);

  void Start();
  // One read of the Secret; the thread repeats it.
  void Look();

  [[nodiscard]] std::string WhyNoneIsServed() const;  // "": a certificate is served
  [[nodiscard]] std::string Trusted() const;          // the authorities for workers, PEM
  // Those of the certificate that is served to workers, PEM; empty: none is served.
  [[nodiscard]] std::string ServedAuthorities() const;
  // For workers.
  [[nodiscard]] const http::ServerCertificate& served() const { return served_; }
  // For clients that read the authority from the Secret: the newest usable certificate, announced or served.
  [[nodiscard]] const http::ServerCertificate& newest() const { return newest_; }

 private:
  void Run(const std::stop_token& stop);
  [[nodiscard]] Result<ServerIdentity> IdentityIn(const Result<Json>& secret) const;
  [[nodiscard]] bool IsToBeRenewed(const Result<Json>& secret, const Result<ServerIdentity>& found) const;
  [[nodiscard]] Result<ServerIdentity> Renew(const Result<Json>& secret);
  [[nodiscard]] Result<void> Take(const Result<ServerIdentity>& found);
  void LogChange(const Certificates& before, const Certificates& after) const;
  void Report(const Result<void>& taken);
  void ReportTrusted();

  kube::KubeClient& client_;
  const Clock& clock_;
  const CertificateOptions options_;
  const std::vector<std::string> dns_names_;  // names that the certificate must have
  const std::function<void()> on_change_;
  http::ServerCertificate served_;
  http::ServerCertificate newest_;
  mutable Mutex mutex_;
  Certificates certificates_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string problem_ LOCKSTEP_GUARDED_BY(mutex_);  // of the last read
  std::string reported_;                             // the last Trusted(); used by the thread that calls Look
  std::jthread thread_;                              // last: joins before the other members are destroyed
};

}  // namespace lockstep::rendezvous
