#include "operator/rendezvous/certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <memory>

#include "operator/kube/base64.h"
#include "runtime/common/base/log.h"

namespace lockstep::rendezvous {
namespace {

template <auto free_function>
struct Free {
  template <typename T>
  void operator()(T* pointer) const {
    free_function(pointer);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Bio = std::unique_ptr<BIO, Free<BIO_free>>;

constexpr long kYears10 = 10L * 365 * 24 * 3600;
constexpr long kClockSkew = 300;  // a worker's clock may be behind ours

template <typename Write>
std::string Pem(Write write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  write(bio.get());
  char* data = nullptr;
  const long length = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(length)};
}

std::string ToPem(X509* certificate) {
  return Pem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); });
}

bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

struct Subject {
  std::string name;
  std::vector<std::pair<int, std::string>> extensions;
};

// Signed by `issuer_key`; self-signed where `issuer` is null.
Certificate Issue(const Subject& subject, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  Certificate certificate(X509_new());
  X509* raw = certificate.get();
  int64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial);
  bool ok = X509_set_version(raw, 2) == 1 &&
            ASN1_INTEGER_set_int64(X509_get_serialNumber(raw), serial & INT64_MAX) == 1 &&
            X509_gmtime_adj(X509_getm_notBefore(raw), -kClockSkew) != nullptr &&
            X509_gmtime_adj(X509_getm_notAfter(raw), kYears10) != nullptr && X509_set_pubkey(raw, key) == 1;
  X509_NAME* name = X509_get_subject_name(raw);
  const auto* text = reinterpret_cast<const unsigned char*>(subject.name.c_str());
  ok = ok && X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, text, -1, -1, 0) == 1;
  X509* signer = issuer != nullptr ? issuer : raw;
  ok = ok && X509_set_issuer_name(raw, X509_get_subject_name(signer)) == 1;
  for (const auto& [nid, value] : subject.extensions) ok = ok && AddExtension(raw, signer, nid, value);
  ok = ok && X509_sign(raw, issuer_key, EVP_sha256()) > 0;
  return ok ? std::move(certificate) : nullptr;
}

std::string AlternativeNames(const std::vector<std::string>& dns_names) {
  std::string names;
  for (const std::string& dns : dns_names) names += (names.empty() ? "DNS:" : ",DNS:") + dns;
  return names;
}

Result<ServerIdentity> FromSecret(const Json& secret) {
  ServerIdentity identity;
  for (const auto& [key, target] :
       {std::pair("ca.crt", &identity.ca_pem), std::pair("tls.crt", &identity.certificate_pem),
        std::pair("tls.key", &identity.key_pem)}) {
    const auto decoded = kube::DecodeBase64(StringAt(secret, {"data", key}));
    if (!decoded.ok() || decoded->empty()) {
      return Error{ErrorCode::kDataLoss, "secret " + kube::KeyOf(secret).ToString() + " has no usable " +
                                             key + "; delete it and it will be made again"};
    }
    *target = *decoded;
  }
  return identity;
}

Json ToSecret(const kube::ObjectKey& key, const ServerIdentity& identity) {
  return {{"metadata",
           {{"namespace", key.name_space},
            {"name", key.name},
            {"labels", {{"app.kubernetes.io/managed-by", "lockstep"}}}}},
          {"type", "kubernetes.io/tls"},
          {"data",
           {{"ca.crt", kube::EncodeBase64(identity.ca_pem)},
            {"tls.crt", kube::EncodeBase64(identity.certificate_pem)},
            {"tls.key", kube::EncodeBase64(identity.key_pem)}}}};
}

}  // namespace

Result<ServerIdentity> MakeServerIdentity(const std::vector<std::string>& dns_names) {
  const Key ca_key(EVP_EC_gen("P-256"));
  const Key key(EVP_EC_gen("P-256"));
  const Error failed{ErrorCode::kInternal, "OpenSSL could not make the rendezvous' certificate"};
  if (ca_key == nullptr || key == nullptr) return failed;
  const Certificate ca = Issue({.name = "lockstep rendezvous authority",
                                .extensions = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                               {NID_key_usage, "critical,keyCertSign"}}},
                               ca_key.get(), nullptr, ca_key.get());
  if (ca == nullptr) return failed;
  const Certificate server = Issue({.name = "lockstep rendezvous",
                                    .extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                                                   {NID_key_usage, "critical,digitalSignature"},
                                                   {NID_ext_key_usage, "serverAuth"},
                                                   {NID_subject_alt_name, AlternativeNames(dns_names)}}},
                                   key.get(), ca.get(), ca_key.get());
  if (server == nullptr) return failed;
  return ServerIdentity{ToPem(ca.get()), ToPem(server.get()), Pem([&](BIO* bio) {
                          PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
                        })};
}

Result<ServerIdentity> EnsureServerIdentity(kube::KubeClient& client, const kube::ObjectKey& secret,
                                            const std::vector<std::string>& dns_names) {
  auto existing = client.Get(kube::kSecrets, secret);
  if (existing.ok()) return FromSecret(*existing);
  if (existing.error().code != ErrorCode::kNotFound) return existing.error();
  LOCKSTEP_TRY(const ServerIdentity identity, MakeServerIdentity(dns_names));
  const auto created = client.Create(kube::kSecrets, ToSecret(secret, identity));
  if (created.ok()) {
    log::Info("rendezvous certificate made", {{"secret", secret.ToString()}});
    return identity;
  }
  if (created.error().code != ErrorCode::kAlreadyExists) return created.error();
  LOCKSTEP_TRY(const Json theirs, client.Get(kube::kSecrets, secret));
  return FromSecret(theirs);
}

}  // namespace lockstep::rendezvous
