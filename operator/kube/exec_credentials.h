#pragma once
// Credentials from a command, as the kubeconfigs of clouds ask for (client.authentication.k8s.io). The
// command runs when there are none yet, when theirs expire within a minute, and when the API server does not
// know them; what it says is kept in files, which the transport reads again when they change.

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
  std::string certificate_and_key;  // PEM, both in one, so that they are replaced at once
  std::optional<WallTime> expires;
};

// What the command wrote. Pure.
[[nodiscard]] Result<ExecCredential> ExecCredentialFromText(const std::string& text,
                                                            const std::string& api_version);

// Any thread. The files in `folder` must outlive it.
class ExecCredentials {
 public:
  ExecCredentials(ExecPlugin plugin, const PrivateFolder& folder, const Clock& clock)
      : plugin_(std::move(plugin)), folder_(folder), clock_(clock) {}

  // Runs the command where that is due.
  [[nodiscard]] Result<void> Ensure();
  // The API server refused what Ensure gave it: runs the command again.
  [[nodiscard]] Result<void> Renew();
  // Points to the files; call once after the first Ensure.
  void AddTo(http::Endpoint& endpoint) const;

 private:
  [[nodiscard]] Result<void> Run() LOCKSTEP_REQUIRES(mutex_);

  const ExecPlugin plugin_;
  const PrivateFolder& folder_;
  const Clock& clock_;
  mutable Mutex mutex_;
  std::optional<ExecCredential> current_ LOCKSTEP_GUARDED_BY(mutex_);
};

// The way to the API server that `config` describes; `config` and `clock` must outlive it.
[[nodiscard]] Result<std::unique_ptr<http::HttpTransport>> MakeTransport(const ClientConfig& config,
                                                                         const Clock& clock);

}  // namespace lockstep::kube
