#include "operator/rendezvous/certificates.h"

#include <algorithm>
#include <utility>

#include "operator/kube/base64.h"
#include "operator/rendezvous/x509.h"
#include "runtime/common/base/time_text.h"
#include "runtime/common/http/address.h"

namespace lockstep::rendezvous {
namespace {

constexpr const char* kCaKey = "ca.crt";
constexpr const char* kCertificateKey = "tls.crt";
constexpr const char* kPrivateKey = "tls.key";
// Clocks of workers may be ahead: the next certificate is served this long before the previous one expires.
constexpr std::chrono::minutes kClockSkew{1};

Error Wrong(const std::string& key, const std::string& what) {
  return {ErrorCode::kInvalidArgument, key + " " + what};
}

Result<std::string> TextAt(const Json& secret, const char* key) {
  auto text = kube::DecodeBase64(StringAt(secret, {"data", key}));
  if (!text.ok()) return Wrong(key, "is not base64");
  if (text->empty()) return Wrong(key, "is missing or empty");
  return text;
}

Result<void> CheckTime(const x509::Certificate& certificate, WallTime now) {
  if (x509::EndOf(certificate) <= now)
    return Wrong(kCertificateKey, "expired at " + FormatTime(x509::EndOf(certificate)));
  if (x509::BeginOf(certificate) > now)
    return Wrong(kCertificateKey, "is not valid before " + FormatTime(x509::BeginOf(certificate)));
  return {};
}

Result<void> Check(const ServerIdentity& identity, const std::vector<std::string>& dns_names, WallTime now) {
  const auto chain = x509::CertificatesFromPem(identity.certificate);
  if (!chain.ok()) return Wrong(kCertificateKey, chain.error().message);
  const auto key = x509::KeyFromPem(identity.key);
  if (!key.ok()) return Wrong(kPrivateKey, key.error().message);
  const auto authorities = x509::CertificatesFromPem(identity.ca);
  if (!authorities.ok()) return Wrong(kCaKey, authorities.error().message);
  if (!x509::BelongsTo(*key, chain->front()))
    return Wrong(kPrivateKey, std::string("is not the key of the certificate in ") + kCertificateKey);
  LOCKSTEP_TRY(CheckTime(chain->front(), now));
  for (const std::string& name : dns_names) {
    if (!x509::IsForName(chain->front(), name))
      return Wrong(kCertificateKey, "is not for the name " + name + ", by which workers connect");
  }
  const auto verified = x509::VerifyServer(*chain, *authorities, now);
  if (!verified.ok()) {
    return Wrong(kCertificateKey, std::string("is not accepted by a worker that trusts ") + kCaKey + ": " +
                                      verified.error().message);
  }
  return {};
}

// Whether workers that trust only `ca` accept the certificate.
bool IsTrustedBy(const ServerIdentity& identity, const std::string& ca, WallTime now) {
  const auto chain = x509::CertificatesFromPem(identity.certificate);
  const auto authorities = x509::CertificatesFromPem(ca);
  return chain.ok() && authorities.ok() && x509::VerifyServer(*chain, *authorities, now).ok();
}

}  // namespace

std::vector<std::string> DnsNamesOf(const std::string& url) {
  const std::string host = http::HostOfUrl(url);
  std::vector<std::string> names = {host};
  if (host.ends_with(".svc")) names.push_back(host + ".cluster.local");
  if (host != "localhost") names.emplace_back("localhost");
  return names;
}

Result<ServerIdentity> MakeServerIdentity(const std::vector<std::string>& dns_names, WallTime now) {
  LOCKSTEP_TRY(const x509::Key ca_key, x509::MakeKey());
  LOCKSTEP_TRY(const x509::Certificate ca, x509::MakeAuthority("lockstep rendezvous", ca_key, now));
  LOCKSTEP_TRY(const x509::Key key, x509::MakeKey());
  LOCKSTEP_TRY(const x509::Certificate server, x509::MakeServerCertificate(dns_names, key, ca, ca_key, now));
  return ServerIdentity{x509::ToPem(ca), x509::ToPem(server), x509::ToPem(key)};
}

Result<ServerIdentity> IdentityFromSecret(const Json& secret, const std::vector<std::string>& dns_names,
                                          WallTime now) {
  ServerIdentity identity;
  LOCKSTEP_TRY(identity.certificate, TextAt(secret, kCertificateKey));
  LOCKSTEP_TRY(identity.key, TextAt(secret, kPrivateKey));
  LOCKSTEP_TRY(identity.ca, TextAt(secret, kCaKey));
  LOCKSTEP_TRY(Check(identity, dns_names, now));
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

WallTime EndOf(const ServerIdentity& identity) {
  const auto chain = x509::CertificatesFromPem(identity.certificate);
  LOCKSTEP_CHECK(chain.ok());
  return x509::EndOf(chain->front());
}

Certificates Follow(Certificates current, const ServerIdentity& found, WallTime now, Milliseconds overlap) {
  if (!current.served || IsTrustedBy(found, current.served->ca, now)) return {.served = found};
  if (current.next != found) {
    current.next = found;
    current.next_from = std::min<WallTime>(now + overlap, EndOf(*current.served) - kClockSkew);
  }
  if (now >= current.next_from) return {.served = found};
  return current;
}

std::string TrustedWith(const Certificates& certificates, const std::set<std::string>& of_others) {
  std::string trusted;
  const auto add = [&trusted](const std::string& authorities) {
    if (trusted.find(authorities) != std::string::npos) return;
    if (!trusted.empty() && !trusted.ends_with('\n')) trusted += '\n';
    trusted += authorities;
  };
  if (certificates.served) add(certificates.served->ca);
  if (certificates.next) add(certificates.next->ca);
  std::for_each(of_others.begin(), of_others.end(), add);
  return trusted;
}

}  // namespace lockstep::rendezvous
