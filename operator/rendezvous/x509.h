#pragma once
// The few things we ask of OpenSSL about certificates, as values. Any thread.

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
using Key = std::unique_ptr<evp_pkey_st, KeyDeleter>;  // EC P-256
using Certificate = std::unique_ptr<x509_st, CertificateDeleter>;

[[nodiscard]] Result<Key> MakeKey();
[[nodiscard]] Result<Certificate> MakeAuthority(const std::string& name, const Key& key, WallTime now);
[[nodiscard]] Result<Certificate> MakeServerCertificate(const std::vector<std::string>& dns_names,
                                                        const Key& key, const Certificate& authority,
                                                        const Key& authority_key, WallTime now);
[[nodiscard]] Result<Certificate> CertificateFromPem(const std::string& pem);
[[nodiscard]] std::string ToPem(const Certificate& certificate);
[[nodiscard]] std::string ToPem(const Key& key);
[[nodiscard]] bool IsValidAt(const Certificate& certificate, WallTime time);
// A DNS name, or an IP address in text form.
[[nodiscard]] bool IsForName(const Certificate& certificate, const std::string& name);

}  // namespace lockstep::rendezvous::x509
