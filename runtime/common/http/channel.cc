#include "runtime/common/http/channel.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <boost/asio/ssl/context.hpp>
#include <cerrno>
#include <new>

namespace lockstep::http {
namespace {

namespace asio = boost::asio;

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// The BIO of a socket. OpenSSL's own (BIO_s_socket) sends SIGPIPE to this process if the peer is gone.
int SocketOf(BIO* bio) { return *static_cast<const int*>(BIO_get_data(bio)); }

int ReadFromSocket(BIO* bio, char* into, int size) {
  BIO_clear_retry_flags(bio);
  const auto got = ::recv(SocketOf(bio), into, static_cast<std::size_t>(size), MSG_DONTWAIT);
  if (got < 0 && WouldBlock()) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

int WriteToSocket(BIO* bio, const char* from, int size) {
  BIO_clear_retry_flags(bio);
  const auto sent = ::send(SocketOf(bio), from, static_cast<std::size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && WouldBlock()) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

// OpenSSL requires an answer, although there is nothing to flush.
long Control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO* NewSocketBio(int& socket) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "non-blocking socket");
    if (made == nullptr) throw std::bad_alloc();
    BIO_meth_set_read(made, ReadFromSocket);
    BIO_meth_set_write(made, WriteToSocket);
    BIO_meth_set_ctrl(made, Control);
    return made;
  }();
  BIO* bio = BIO_new(method);
  if (bio == nullptr) throw std::bad_alloc();
  BIO_set_data(bio, &socket);
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace

void TlsDeleter::operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
void TlsDeleter::operator()(SSL* tls) const { SSL_free(tls); }

Result<TlsContext> MakeTlsContext(const std::string& certificate_pem, const std::string& key_pem) {
  try {
    asio::ssl::context context(asio::ssl::context::tls_server);
    context.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                        asio::ssl::context::no_tlsv1_1 | SSL_OP_NO_TICKET);
    context.use_certificate_chain(asio::buffer(certificate_pem));
    context.use_private_key(asio::buffer(key_pem), asio::ssl::context::pem);
    SSL_CTX* const native = context.native_handle();
    SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(native, 1);  // otherwise it reads from the socket twice for each record
    // Our clients do not resume sessions.
    SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(native, 0);
    SSL_CTX_up_ref(native);
    return TlsContext(native);
  } catch (const std::exception& exception) {
    return Error{ErrorCode::kInvalidArgument, std::string("server certificate: ") + exception.what()};
  }
}

Channel::Channel(int socket, SSL_CTX* context) : socket_(socket) {
  if (context == nullptr) return;
  tls_.reset(SSL_new(context));
  if (tls_ == nullptr) throw std::bad_alloc();
  BIO* const bio = NewSocketBio(socket_);
  SSL_set_bio(tls_.get(), bio, bio);
  SSL_set_accept_state(tls_.get());
}

Channel::Progress Channel::Read(std::span<char> into) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    return OfTls(SSL_read(tls_.get(), into.data(), static_cast<int>(into.size())));
  }
  const auto got = ::recv(socket_, into.data(), into.size(), MSG_DONTWAIT);
  if (got < 0) return {.wait = WouldBlock() ? Wait::kReadable : Wait::kNothing};
  return {.bytes = static_cast<std::size_t>(got)};
}

Channel::Progress Channel::Write(std::string_view bytes) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    return OfTls(SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size())));
  }
  const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return {.wait = WouldBlock() ? Wait::kWritable : Wait::kNothing};
  return {.bytes = static_cast<std::size_t>(sent)};
}

Channel::Progress Channel::OfTls(int result) const {
  if (result > 0) return {.bytes = static_cast<std::size_t>(result)};
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ: return {.wait = Wait::kReadable};
    case SSL_ERROR_WANT_WRITE: return {.wait = Wait::kWritable};
    default: return {};
  }
}

}  // namespace lockstep::http
