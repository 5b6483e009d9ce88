#pragma once
// The operations on certificates that the operator needs from OpenSSL, as values. Any thread.

#include <memory>
#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

struct evp_pkey_st;
struct x509_st;

namespace lockstep::rendezvous::x509 {

struct KeyDeleter {
  void operator()(evp_pkey_st* key) const;
};
struct CertificateDeleter {
  void operator()(x509_st* certificate) const;
};
using Key = std::unique_ptr<evp_pkey_st, KeyDeleter>;
using Certificate = std::unique_ptr<x509_st, CertificateDeleter>;

[[nodiscard]] Result<Key> MakeKey();  // EC P-256
[[nodiscard]] Result<Certificate> MakeAuthority(const std::string& name, const Key& key, WallTime now);
[[nodiscard]] Result<Certificate> MakeServerCertificate(const std::vector<std::string>& dns_names,
                                                        const Key& key, const Certificate& authority,
                                                        const Key& authority_key, WallTime now);
// All certificates of the text, in its order; at least one.
[[nodiscard]] Result<std::vector<Certificate>> CertificatesFromPem(const std::string& pem);
[[nodiscard]] Result<Key> KeyFromPem(const std::string& pem);
[[nodiscard]] std::string ToPem(const Certificate& certificate);
[[nodiscard]] std::string ToPem(const Key& key);
[[nodiscard]] bool BelongsTo(const Key& key, const Certificate& certificate);
[[nodiscard]] WallTime BeginOf(const Certificate& certificate);
[[nodiscard]] WallTime EndOf(const Certificate& certificate);
// A DNS name, or an IP address in text form.
[[nodiscard]] bool IsForName(const Certificate& certificate, const std::string& name);
// Whether a client that trusts only `authorities` accepts this server's certificate at this time. The
// certificate is the first of `chain`; the others are the intermediates that the server sends. Fails with
// OpenSSL's reason.
[[nodiscard]] Result<void> VerifyServer(const std::vector<Certificate>& chain,
                                        const std::vector<Certificate>& authorities, WallTime time);

}  // namespace lockstep::rendezvous::x509
