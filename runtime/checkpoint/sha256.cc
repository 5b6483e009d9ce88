#include "runtime/checkpoint/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "runtime/common/base/result.h"

namespace lockstep::checkpoint {

Sha256Sum::Sha256Sum() : context_(EVP_MD_CTX_new()) {
  LOCKSTEP_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
                 "SHA-256 is not available");
}

void Sha256Sum::Add(std::string_view piece) {
  LOCKSTEP_CHECK(EVP_DigestUpdate(context_.get(), piece.data(), piece.size()) == 1, "SHA-256 failed");
}

std::string Sha256Sum::Finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  LOCKSTEP_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &length) == 1, "SHA-256 failed");
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += kHex[digest.at(i) >> 4U];
    text += kHex[digest.at(i) & 0xFU];
  }
  return text;
}

void Sha256Sum::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

std::string Sha256(std::string_view content) {
  Sha256Sum sum;
  sum.Add(content);
  return sum.Finish();
}

}  // namespace lockstep::checkpoint
