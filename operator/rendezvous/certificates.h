#pragma once
// The certificates of the rendezvous as values: what a Secret holds, whether workers would accept it, and what is
// served and trusted while one certificate follows another. certificate_keeper reads and serves them. Pure.

#include <optional>
#include <string>
#include <vector>

#include "operator/kube/object.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

namespace lockstep::rendezvous {

// PEM texts: ca.crt, tls.crt and tls.key of a Secret of type kubernetes.io/tls.
struct ServerIdentity {
  std::string ca;           // the authorities, one or more
  std::string certificate;  // with the intermediate authorities that the server sends
  std::string key;

  friend bool operator==(const ServerIdentity&, const ServerIdentity&) = default;
};

// The names by which workers may reach the host of `url` ("https://name.namespace.svc:29400").
[[nodiscard]] std::vector<std::string> DnsNamesOf(const std::string& url);

// With an authority of its own, whose key is thrown away: nobody can ever issue another certificate that workers
// would trust. Both are valid for ten years. Fails only where OpenSSL does.
[[nodiscard]] Result<ServerIdentity> MakeServerIdentity(const std::vector<std::string>& dns_names,
                                                        WallTime now);

// Fails where workers that connect to one of `dns_names` would not accept it, with the key of the Secret
// and what is wrong with it.
[[nodiscard]] Result<ServerIdentity> IdentityFromSecret(const Json& secret,
                                                        const std::vector<std::string>& dns_names,
                                                        WallTime now);
[[nodiscard]] Json SecretFrom(const kube::ObjectKey& key, const ServerIdentity& identity);

// When the certificate of an identity ends that IdentityFromSecret has accepted.
[[nodiscard]] WallTime EndOf(const ServerIdentity& identity);

// A certificate of another authority is announced first: pods that run learn of that authority when the kubelet
// updates their ConfigMap. Meanwhile the one before is served.
struct Certificates {
  std::optional<ServerIdentity> served;
  std::optional<ServerIdentity> next;  // announced; only where one is served
  WallTime next_from{};                // when it is served

  friend bool operator==(const Certificates&, const Certificates&) = default;
};

// What follows when `found` is the newest that can be used. `overlap`: how long an authority is announced. It is
// shorter where the certificate that is served ends before.
[[nodiscard]] Certificates Follow(Certificates current, const ServerIdentity& found, WallTime now,
                                  Milliseconds overlap);

// The authorities that workers are to trust, PEM text: of what is served and of what is announced.
[[nodiscard]] std::string TrustedWith(const Certificates& certificates);

}  // namespace lockstep::rendezvous
