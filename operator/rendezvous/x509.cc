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
#include <ctime>
#include <utility>

namespace lockstep::rendezvous::x509 {
namespace {

constexpr std::chrono::hours kValidity{24 * 365 * 10};
constexpr std::chrono::hours kClockSkew{1};  // a worker's clock may be behind
constexpr int kSerialBits = 127;

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Extension = std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)>;
using Number = std::unique_ptr<BIGNUM, decltype(&BN_free)>;
using CertificateStack = std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)>;
using Store = std::unique_ptr<X509_STORE, decltype(&X509_STORE_free)>;
using Verification = std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)>;

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

// Version, serial number, names, validity and public key: everything except extensions and signature.
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

WallTime TimeFrom(const ASN1_TIME* time) {
  std::tm parts{};
  ASN1_TIME_to_tm(time, &parts);
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
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
  // The common name has at most 64 characters and no client reads it: the subject alternative names count.
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

Result<std::vector<Certificate>> CertificatesFromPem(const std::string& pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  std::vector<Certificate> certificates;
  while (Certificate next{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)})
    certificates.push_back(std::move(next));
  const bool is_at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (certificates.empty() || !is_at_end)
    return Error{ErrorCode::kInvalidArgument, "is not a list of certificates in PEM form"};
  return certificates;
}

Result<Key> KeyFromPem(const std::string& pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  // With an empty password OpenSSL does not ask a terminal for the password of an encrypted key.
  std::string password;
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, password.data()));
  ERR_clear_error();
  if (key == nullptr)
    return Error{ErrorCode::kInvalidArgument, "is not a private key in PEM form without a password"};
  return key;
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

bool BelongsTo(const Key& key, const Certificate& certificate) {
  const bool belongs = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  return belongs;
}

WallTime BeginOf(const Certificate& certificate) { return TimeFrom(X509_get0_notBefore(certificate.get())); }
WallTime EndOf(const Certificate& certificate) { return TimeFrom(X509_get0_notAfter(certificate.get())); }

bool IsForName(const Certificate& certificate, const std::string& name) {
  if (IsAddress(name)) return X509_check_ip_asc(certificate.get(), name.c_str(), 0) == 1;
  return X509_check_host(certificate.get(), name.data(), name.size(), 0, nullptr) == 1;
}

Result<void> VerifyServer(const std::vector<Certificate>& chain, const std::vector<Certificate>& authorities,
                          WallTime time) {
  const Store store(X509_STORE_new(), &X509_STORE_free);
  const Verification verification(X509_STORE_CTX_new(), &X509_STORE_CTX_free);
  const CertificateStack sent(sk_X509_new_null(), [](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  bool done = store != nullptr && verification != nullptr && sent != nullptr;
  for (const Certificate& authority : authorities)
    done = done && X509_STORE_add_cert(store.get(), authority.get()) == 1;
  for (const Certificate& certificate : chain) done = done && sk_X509_push(sent.get(), certificate.get()) > 0;
  done = done && X509_STORE_CTX_init(verification.get(), store.get(), chain.front().get(), sent.get()) == 1 &&
         X509_STORE_CTX_set_default(verification.get(), "ssl_server") == 1;
  if (!done) return Failed("preparing a verification");
  X509_STORE_CTX_set_time(verification.get(), 0, std::chrono::system_clock::to_time_t(time));
  const bool is_good = X509_verify_cert(verification.get()) == 1;
  ERR_clear_error();
  if (is_good) return {};
  return Error{ErrorCode::kInvalidArgument,
               X509_verify_cert_error_string(X509_STORE_CTX_get_error(verification.get()))};
}

}  // namespace lockstep::rendezvous::x509
