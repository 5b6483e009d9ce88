#pragma once
// Credentials from a command, as in the kubeconfigs of cloud providers (client.authentication.k8s.io). The
// command runs when there are no credentials, when they expire within a minute, and when the API server
// rejects them. The credentials are kept in files, which the transport reads again when they change.

#include <memory>
#include <optional>
#include <string>

#include "operator/kube/client_config.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/http/transport.h"

namespace lockstep::kube {

struct ExecCredential {
  std::string token;
  std::string certificate_and_key;  // PEM of both in one file, so that they are replaced atomically
  std::optional<WallTime> expires;
};

// Parses the output of the command. Pure.
[[nodiscard]] Result<ExecCredential> ExecCredentialFromText(const std::string& text,
                                                            const std::string& api_version);

// Any thread. The files in `folder` must outlive it.
class ExecCredentials {
 public:
  ExecCredentials(ExecPlugin plugin, const PrivateFolder& folder, const Clock& clock)
      : plugin_(std::move(plugin)), folder_(folder), clock_(clock) {}

  // Runs the command if the credentials are missing or about to expire.
  [[nodiscard]] Result<void> Ensure();
  // Runs the command again, because the API server rejected the current credentials.
  [[nodiscard]] Result<void> Renew();
  // Makes the endpoint use the files. Call once, after the first Ensure.
  void AddTo(http::Endpoint& endpoint) const;

 private:
  [[nodiscard]] Result<void> Run() LOCKSTEP_REQUIRES(mutex_);

  const ExecPlugin plugin_;
  const PrivateFolder& folder_;
  const Clock& clock_;
  mutable Mutex mutex_;
  std::optional<ExecCredential> current_ LOCKSTEP_GUARDED_BY(mutex_);
};

// The transport to the API server that `config` describes. `config` and `clock` must outlive it.
[[nodiscard]] Result<std::unique_ptr<http::HttpTransport>> MakeTransport(const ClientConfig& config,
                                                                         const Clock& clock);

}  // namespace lockstep::kube
