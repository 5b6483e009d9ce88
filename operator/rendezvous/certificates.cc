#include "operator/rendezvous/certificates.h"

#include "operator/kube/base64.h"
#include "operator/rendezvous/x509.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/http/address.h"

namespace lockstep::rendezvous {
namespace {

constexpr const char* kCaKey = "ca.crt";
constexpr const char* kCertificateKey = "tls.crt";
constexpr const char* kPrivateKey = "tls.key";
constexpr int kAttempts = 5;

Result<ServerIdentity> IdentityFromSecret(const Json& secret) {
  ServerIdentity identity;
  LOCKSTEP_TRY(identity.ca, kube::DecodeBase64(StringAt(secret, {"data", kCaKey})));
  LOCKSTEP_TRY(identity.certificate, kube::DecodeBase64(StringAt(secret, {"data", kCertificateKey})));
  LOCKSTEP_TRY(identity.key, kube::DecodeBase64(StringAt(secret, {"data", kPrivateKey})));
  return identity;
}

Json SecretFrom(const kube::ObjectKey& key, const ServerIdentity& identity) {
  return {{"metadata", {{"namespace", key.name_space}, {"name", key.name}}},
          {"type", "kubernetes.io/tls"},
          {"data",
           {{kCaKey, kube::EncodeBase64(identity.ca)},
            {kCertificateKey, kube::EncodeBase64(identity.certificate)},
            {kPrivateKey, kube::EncodeBase64(identity.key)}}}};
}

// Writes a new identity over `current` (null: there is none). kAlreadyExists or kConflict: somebody else was
// faster.
Result<Json> WriteNew(kube::KubeClient& client, const kube::ObjectKey& key, const Json& current,
                      const std::vector<std::string>& dns_names, WallTime now) {
  LOCKSTEP_TRY(const ServerIdentity identity, MakeServerIdentity(dns_names, now));
  Json secret = SecretFrom(key, identity);
  if (current.is_null()) return client.Create(kube::kSecrets, secret);
  secret["metadata"]["resourceVersion"] = StringAt(current, {"metadata", "resourceVersion"});
  secret["type"] = StringAt(current, {"type"});  // immutable
  return client.Replace(kube::kSecrets, secret);
}

}  // namespace

Result<ServerIdentity> MakeServerIdentity(const std::vector<std::string>& dns_names, WallTime now) {
  LOCKSTEP_TRY(const x509::Key ca_key, x509::MakeKey());
  LOCKSTEP_TRY(const x509::Certificate ca, x509::MakeAuthority("lockstep rendezvous", ca_key, now));
  LOCKSTEP_TRY(const x509::Key key, x509::MakeKey());
  LOCKSTEP_TRY(const x509::Certificate server, x509::MakeServerCertificate(dns_names, key, ca, ca_key, now));
  return ServerIdentity{x509::ToPem(ca), x509::ToPem(server), x509::ToPem(key)};
}

std::string WhyUnusable(const ServerIdentity& identity, const std::vector<std::string>& dns_names,
                        WallTime now) {
  const auto certificate = x509::CertificateFromPem(identity.certificate);
  if (!certificate.ok()) return certificate.error().message;
  if (const auto ca = x509::CertificateFromPem(identity.ca); !ca.ok()) return ca.error().message;
  if (!x509::IsValidAt(*certificate, now + std::chrono::hours(24 * 30))) return "it expires within a month";
  for (const std::string& name : dns_names) {
    if (!x509::IsForName(*certificate, name)) return "it is not for " + name;
  }
  return "";
}

std::vector<std::string> DnsNamesOf(const std::string& url) {
  const std::string host = http::HostOfUrl(url);
  std::vector<std::string> names = {host};
  if (host.ends_with(".svc")) names.push_back(host + ".cluster.local");
  if (host != "localhost") names.emplace_back("localhost");
  return names;
}

Result<ServerIdentity> EnsureServerIdentity(kube::KubeClient& client, const kube::ObjectKey& secret,
                                            const std::vector<std::string>& dns_names, WallTime now) {
  const std::string what = "Secret " + secret.ToString();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto current = client.Get(kube::kSecrets, secret);
    if (!current.ok() && current.error().code != ErrorCode::kNotFound)
      return current.error().WithContext(what);
    std::string why = "it is not there";
    if (current.ok()) {
      auto identity = IdentityFromSecret(*current);
      why = identity.ok() ? WhyUnusable(*identity, dns_names, now) : identity.error().message;
      if (why.empty()) return identity;
    }
    const auto written = WriteNew(client, secret, current.ok() ? *current : Json(), dns_names, now);
    if (written.ok()) {
      log::Info("made the certificate of the rendezvous", {{"secret", secret.ToString()}, {"reason", why}});
      return IdentityFromSecret(*written).WithContext(what);
    }
    const ErrorCode code = written.error().code;
    if (code != ErrorCode::kAlreadyExists && code != ErrorCode::kConflict)
      return written.error().WithContext(what);
  }
  return Error{ErrorCode::kConflict, what + ": others keep changing it"};
}

}  // namespace lockstep::rendezvous
