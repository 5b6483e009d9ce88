#pragma once
// The certificates of the rendezvous as values: the contents of a Secret, whether workers would accept it,
// and what is served and trusted while a new certificate replaces the old one. certificate_keeper reads and
// serves them. Pure.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/kube/object.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

namespace lockstep::rendezvous {

// PEM texts: ca.crt, tls.crt and tls.key of a Secret of type kubernetes.io/tls.
struct ServerIdentity {
  std::string ca;           // the authorities, one or more
  std::string certificate;  // with the intermediate certificates that the server sends
  std::string key;

  friend bool operator==(const ServerIdentity&, const ServerIdentity&) = default;
};

// The names by which workers may reach the host of `url` ("https://name.namespace.svc:29400").
[[nodiscard]] std::vector<std::string> DnsNamesOf(const std::string& url);

// Makes an authority of its own, whose private key is discarded, so that no other certificate that workers
// would trust can be issued. Both are valid for ten years. Fails only if OpenSSL does.
[[nodiscard]] Result<ServerIdentity> MakeServerIdentity(const std::vector<std::string>& dns_names,
                                                        WallTime now);

// Fails if workers that connect to one of `dns_names` would reject it; the error names the key of the Secret
// and the problem.
[[nodiscard]] Result<ServerIdentity> IdentityFromSecret(const Json& secret,
                                                        const std::vector<std::string>& dns_names,
                                                        WallTime now);
[[nodiscard]] Json SecretFrom(const kube::ObjectKey& key, const ServerIdentity& identity);

// The expiry of the certificate of an identity from IdentityFromSecret.
[[nodiscard]] WallTime EndOf(const ServerIdentity& identity);

// A certificate of a new authority is announced before it is served: running pods get the new authority when
// the kubelet updates their ConfigMap. Until then the previous certificate is served.
struct Certificates {
  std::optional<ServerIdentity> served;
  std::optional<ServerIdentity> next;  // announced; only if another one is served
  WallTime next_from{};                // when `next` will be served

  friend bool operator==(const Certificates&, const Certificates&) = default;
};

// The state after `found`, the newest usable certificate. `overlap`: how long a new authority is announced;
// shorter if the served certificate expires before.
[[nodiscard]] Certificates Follow(Certificates current, const ServerIdentity& found, WallTime now,
                                  Milliseconds overlap);

// The authorities that workers must trust, PEM: of the served and of the announced certificate, and those of
// the certificates that other replicas serve.
[[nodiscard]] std::string TrustedWith(const Certificates& certificates,
                                      const std::set<std::string>& of_others = {});

}  // namespace lockstep::rendezvous
