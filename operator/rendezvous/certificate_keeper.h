#pragma once
// Reads the Secret with the certificate of the rendezvous every few seconds, and has what follows from it
// (certificates.h) served and trusted. Every replica of the operator has one from its start, so that the next leader
// serves what the leader before it served. A thread of its own; the other methods from any thread. Failures are retried for ever.

#include <functional>
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
  kOperator,  // made where it is absent or cannot be used, replaced a month before its end
  kOther,     // cert-manager, say: read only
};

struct CertificateOptions {
  kube::ObjectKey secret;
  SecretKeeper kept_by = SecretKeeper::kOperator;
  std::string rendezvous_url;  // as workers reach it
  Milliseconds overlap{};      // see Follow
};

class CertificateKeeper {
 public:
  // `on_change` is called on the thread of Look, after Trusted() has changed.
  CertificateKeeper(kube::KubeClient& client, const Clock& clock, CertificateOptions options,
                    std::function<void()> on_change);

  void Start();
  // What the thread repeats.
  void Look();

  [[nodiscard]] std::string WhyNoneIsServed() const;  // "": one is
  [[nodiscard]] std::string Trusted() const;          // the authorities for workers, PEM text
  // For workers.
  [[nodiscard]] const http::ServerCertificate& served() const { return served_; }
  // For clients that read the authority from the Secret: the newest that can be used, announced or served.
  [[nodiscard]] const http::ServerCertificate& newest() const { return newest_; }

 private:
  void Run(const std::stop_token& stop);
  [[nodiscard]] Result<ServerIdentity> IdentityIn(const Result<Json>& secret) const;
  [[nodiscard]] bool IsToBeRenewed(const Result<Json>& secret, const Result<ServerIdentity>& found) const;
  [[nodiscard]] Result<ServerIdentity> Renew(const Result<Json>& secret);
  [[nodiscard]] Result<void> Take(const Result<ServerIdentity>& found);
  void LogChange(const Certificates& before, const Certificates& after) const;
  void Report(const Result<void>& taken);

  kube::KubeClient& client_;
  const Clock& clock_;
  const CertificateOptions options_;
  const std::vector<std::string> dns_names_;  // that a certificate needs
  const std::function<void()> on_change_;
  http::ServerCertificate served_;
  http::ServerCertificate newest_;
  mutable Mutex mutex_;
  Certificates certificates_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string problem_ LOCKSTEP_GUARDED_BY(mutex_);  // of the last look
  std::jthread thread_;                              // last: joins before the rest goes
};

}  // namespace lockstep::rendezvous
