#pragma once
// The certificate of the rendezvous server: a CA of its own and one server certificate, kept in a Secret so
// that the next leader serves the same and running workers go on trusting it.

#include <string>
#include <vector>

#include "operator/kube/client.h"
#include "runtime/common/base/clock.h"

namespace lockstep::rendezvous {

// PEM texts.
struct ServerIdentity {
  std::string ca;
  std::string certificate;
  std::string key;
};

// The CA's key is thrown away: nobody can ever issue another certificate that workers would trust. Both are
// valid for ten years. Fails only where OpenSSL does.
[[nodiscard]] Result<ServerIdentity> MakeServerIdentity(const std::vector<std::string>& dns_names,
                                                        WallTime now);

// Why this identity cannot be used any more, or "": expired within a month, or not for these names.
[[nodiscard]] std::string WhyUnusable(const ServerIdentity& identity,
                                      const std::vector<std::string>& dns_names, WallTime now);

// The names by which workers may reach the host of `url` ("https://name.namespace.svc:29400").
[[nodiscard]] std::vector<std::string> DnsNamesOf(const std::string& url);

// Reads the Secret; makes it where it is absent, replaces its content where that is unusable. Another
// operator may do the same at the same time: the first write wins, and both serve what it wrote.
[[nodiscard]] Result<ServerIdentity> EnsureServerIdentity(kube::KubeClient& client,
                                                          const kube::ObjectKey& secret,
                                                          const std::vector<std::string>& dns_names,
                                                          WallTime now);

}  // namespace lockstep::rendezvous
