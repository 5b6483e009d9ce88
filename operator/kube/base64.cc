#include "operator/kube/base64.h"

#include <openssl/evp.h>

#include <algorithm>

namespace lockstep::kube {

std::string EncodeBase64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int length =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

Result<std::string> DecodeBase64(std::string_view text) {
  std::string packed;
  std::copy_if(text.begin(), text.end(), std::back_inserter(packed),
               [](char c) { return c != '\n' && c != '\r' && c != ' '; });
  std::string bytes(packed.size() / 4 * 3, '\0');
  const int length =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                      reinterpret_cast<const unsigned char*>(packed.data()), static_cast<int>(packed.size()));
  if (length < 0 || packed.size() % 4 != 0) return Error{ErrorCode::kInvalidArgument, "not valid base64"};
  // OpenSSL counts the padding as bytes.
  const auto padding = static_cast<std::size_t>(
      std::count(packed.end() - std::min<std::ptrdiff_t>(2, std::ssize(packed)), packed.end(), '='));
  bytes.resize(static_cast<std::size_t>(length) - padding);
  return bytes;
}

}  // namespace lockstep::kube
