#pragma once
// The bytes of one accepted connection, plain or over TLS, for the server. A call does what is possible now,
// never blocks, and returns what the connection waits for. One thread at a time; the caller owns the socket,
// which must be open.
//
// An idle connection holds no buffers: OpenSSL reads from the socket and writes to it directly, and frees its
// own buffers when they are empty. (asio::ssl::stream keeps four of 17 KB for each connection.)

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/common/base/result.h"

struct ssl_ctx_st;  // OpenSSL
struct ssl_st;

namespace lockstep::http {

struct TlsDeleter {
  void operator()(ssl_ctx_st* context) const;
  void operator()(ssl_st* tls) const;
};
using TlsContext = std::unique_ptr<ssl_ctx_st, TlsDeleter>;

// For a server. Fails if the chain or the key (PEM text) does not parse.
[[nodiscard]] Result<TlsContext> MakeTlsContext(const std::string& certificate_pem,
                                                const std::string& key_pem);

class Channel {
 public:
  enum class Wait { kNothing, kReadable, kWritable };
  struct Progress {
    std::size_t bytes = 0;
    Wait wait = Wait::kNothing;  // kNothing with no bytes: the connection is closed
  };

  // Without a context the channel is plain.
  Channel(int socket, ssl_ctx_st* context);
  Channel(const Channel&) = delete;  // OpenSSL has a pointer to this object
  Channel& operator=(const Channel&) = delete;

  // Also performs the handshake.
  [[nodiscard]] Progress Read(std::span<char> into);
  // If it returns a wait, the next call must pass the same bytes.
  [[nodiscard]] Progress Write(std::string_view bytes);

 private:
  [[nodiscard]] Progress OfTls(int result) const;

  int socket_;
  std::unique_ptr<ssl_st, TlsDeleter> tls_;  // null: plain
};

}  // namespace lockstep::http
