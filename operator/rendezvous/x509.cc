#include "operator/rendezvous/x509.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <array>

namespace lockstep::rendezvous::x509 {
namespace {

constexpr std::chrono::hours kValidity{24 * 365 * 10};
constexpr std::chrono::hours kClockSkew{1};  // a worker's clock may be behind
constexpr int kSerialBits = 127;

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Extension = std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)>;
using Number = std::unique_ptr<BIGNUM, decltype(&BN_free)>;

Error Failed(const std::string& what) {
  std::array<char, 200> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  return {ErrorCode::kInternal, "OpenSSL: " + what + ": " + text.data()};
}

std::string TextOf(const Bio& bio) {
  char* data = nullptr;
  const long length = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(length)};
}

bool Add(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()),
                            &X509_EXTENSION_free);
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool SetRandomSerial(X509* certificate) {
  const Number number(BN_new(), &BN_free);
  return number != nullptr && BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

// Version, serial, names, times and public key: everything but extensions and signature.
Result<Certificate> Begin(const std::string& subject, const Key& key, const Certificate& issuer,
                          WallTime now) {
  Certificate made(X509_new());
  if (made == nullptr) return Failed("X509_new");
  X509* certificate = made.get();
  const std::time_t begin = std::chrono::system_clock::to_time_t(now - kClockSkew);
  const std::time_t end = std::chrono::system_clock::to_time_t(now + kValidity);
  X509_NAME* name = X509_get_subject_name(certificate);
  const bool done =
      X509_set_version(certificate, X509_VERSION_3) == 1 && SetRandomSerial(certificate) &&
      ASN1_TIME_set(X509_getm_notBefore(certificate), begin) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(certificate), end) != nullptr &&
      X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(subject.c_str()), -1, -1, 0) == 1 &&
      X509_set_issuer_name(certificate, issuer == nullptr ? name : X509_get_subject_name(issuer.get())) ==
          1 &&
      X509_set_pubkey(certificate, key.get()) == 1;
  if (!done) return Failed("filling a certificate");
  return made;
}

Result<Certificate> Sign(Certificate certificate, const Key& key) {
  if (X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0) return Failed("signing a certificate");
  return certificate;
}

bool IsAddress(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
}

}  // namespace

void KeyDeleter::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }
void CertificateDeleter::operator()(x509_st* certificate) const { X509_free(certificate); }

Result<Key> MakeKey() {
  Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("making a key");
  return key;
}

Result<Certificate> MakeAuthority(const std::string& name, const Key& key, WallTime now) {
  LOCKSTEP_TRY(Certificate made, Begin(name, key, nullptr, now));
  X509* certificate = made.get();
  const bool done = Add(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                    Add(certificate, certificate, NID_key_usage, "critical,keyCertSign") &&
                    Add(certificate, certificate, NID_subject_key_identifier, "hash");
  if (!done) return Failed("extending the authority");
  return Sign(std::move(made), key);
}

Result<Certificate> MakeServerCertificate(const std::vector<std::string>& dns_names, const Key& key,
                                          const Certificate& authority, const Key& authority_key,
                                          WallTime now) {
  // A common name is limited to 64 characters and read by nobody: the alternative names count.
  LOCKSTEP_TRY(Certificate made, Begin("lockstep-rendezvous", key, authority, now));
  std::string names;
  for (const std::string& name : dns_names) {
    names += (names.empty() ? "" : ",") + std::string(IsAddress(name) ? "IP:" : "DNS:") + name;
  }
  X509* certificate = made.get();
  X509* issuer = authority.get();
  const bool done = Add(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
                    Add(certificate, issuer, NID_key_usage, "critical,digitalSignature") &&
                    Add(certificate, issuer, NID_ext_key_usage, "serverAuth") &&
                    Add(certificate, issuer, NID_authority_key_identifier, "keyid") &&
                    Add(certificate, issuer, NID_subject_alt_name, names);
  if (!done) return Failed("extending the server certificate");
  return Sign(std::move(made), authority_key);
}

Result<Certificate> CertificateFromPem(const std::string& pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) return Error{ErrorCode::kInvalidArgument, "not a certificate in PEM form"};
  return certificate;
}

std::string ToPem(const Certificate& certificate) {
  const Bio bio(BIO_new(BIO_s_mem()), &BIO_free);
  PEM_write_bio_X509(bio.get(), certificate.get());
  return TextOf(bio);
}

std::string ToPem(const Key& key) {
  const Bio bio(BIO_new(BIO_s_mem()), &BIO_free);
  PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return TextOf(bio);
}

bool IsValidAt(const Certificate& certificate, WallTime time) {
  std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  return X509_cmp_time(X509_get0_notBefore(certificate.get()), &seconds) < 0 &&
         X509_cmp_time(X509_get0_notAfter(certificate.get()), &seconds) > 0;
}

bool IsForName(const Certificate& certificate, const std::string& name) {
  if (IsAddress(name)) return X509_check_ip_asc(certificate.get(), name.c_str(), 0) == 1;
  return X509_check_host(certificate.get(), name.data(), name.size(), 0, nullptr) == 1;
}

}  // namespace lockstep::rendezvous::x509
