#include "runtime/common/http/beast_session.h"

#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>
#include <cctype>
#include <string_view>
#include <utility>

#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/open_files.h"

namespace lockstep::http {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Tcp = asio::ip::tcp;
using BeastRequest = beast::http::request<beast::http::string_body>;

constexpr auto kIdleTimeout = std::chrono::seconds(120);
constexpr auto kIoTimeout = std::chrono::seconds(20);
constexpr std::size_t kChunkBytes = 16 << 10;  // on the stack; the size of a TLS record

ServerRequest FromBeast(const BeastRequest& request) {
  ServerRequest out;
  out.method = std::string(request.method_string());
  const std::string target(request.target());
  const std::size_t question = target.find('?');
  out.path = target.substr(0, question);
  if (question != std::string::npos) out.query = target.substr(question + 1);
  for (const auto& field : request) {
    std::string name(field.name_string());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    out.headers[name] = std::string(field.value());
  }
  out.body = request.body();
  return out;
}

std::string TextOf(const Response& response, bool keep_alive) {
  const auto status = static_cast<beast::http::status>(response.status);
  std::string text = "HTTP/1.1 " + std::to_string(response.status) + " " +
                     std::string(beast::http::obsolete_reason(status)) + "\r\n";
  for (const auto& [name, value] : response.headers) text += name + ": " + value + "\r\n";
  if (!keep_alive) text += "Connection: close\r\n";
  text += "Content-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
  return text + response.body;
}

}  // namespace

bool Sessions::Add(const std::shared_ptr<Session>& session) {
  const MutexLock lock(mutex_);
  if (!is_closed_) open_.insert(session);
  return !is_closed_;
}

void Sessions::Remove(const std::shared_ptr<Session>& session) {
  const MutexLock lock(mutex_);
  open_.erase(session);
}

std::set<std::shared_ptr<Session>> Sessions::TakeAll() {
  const MutexLock lock(mutex_);
  is_closed_ = true;
  return std::move(open_);
}

SharedBySessions::SharedBySessions(const ServerOptions& options)
    : certificate(options.certificate),
      max_body_bytes(options.max_body_bytes),
      limits(options.limits),
      ledger(options.limits, OpenFileLimit()) {}

template <typename Work>
void Session::Step(Work&& work) {
  if (!socket_.is_open()) return;  // the descriptor may belong to another connection by now
  const auto done = Guarded([&] { work(*this); });
  if (done.ok()) return;
  End();
  log::Error("connection failed", {{"error", done.error().message}});
}

template <typename Work>
void Session::Post(Work work) {
  asio::post(socket_.get_executor(),
             [self = shared_from_this(), work = std::move(work)] { self->Step(work); });
}

// Sends 503 if every copy of the Responder is dropped unanswered.
struct Session::Pending {
  std::weak_ptr<Session> session;
  std::atomic<bool> answered{false};
  void Answer(Response response) {
    if (answered.exchange(true)) return;
    const auto alive = session.lock();
    if (alive == nullptr) return;
    alive->Post([response = std::move(response)](Session& self) { self.Write(response); });
  }
  ~Pending() { Answer(TextResponse(503, "the server is stopping\n")); }
};

Session::Session(std::shared_ptr<SharedBySessions> shared, std::string peer, Tcp::socket socket,
                 ssl_ctx_st* context)
    : shared_(std::move(shared)),
      peer_(std::move(peer)),
      socket_(std::move(socket)),
      channel_(socket_.native_handle(), context),
      trust_deadline_(std::chrono::steady_clock::now() + shared_->limits.until_trusted) {}

void Session::Start(ConnectionLedger::Place place) {
  place_.emplace(std::move(place));
  Post(
      [](Session& self) { self.shared_->sessions.Add(self.shared_from_this()) ? self.Begin() : self.End(); });
}

void Session::Close() {
  Post([](Session& self) { self.End(); });
}

void Session::Await(Channel::Wait wait, void (Session::*next)()) {
  const auto event = wait == Channel::Wait::kReadable ? Tcp::socket::wait_read : Tcp::socket::wait_write;
  socket_.async_wait(event, [self = shared_from_this(), next](beast::error_code error) {
    self->Step([&](Session& session) { error ? session.End() : (session.*next)(); });
  });
}

void Session::EndAt(std::chrono::steady_clock::time_point when) {
  deadline_.expires_at(when);
  deadline_.async_wait([self = shared_from_this()](beast::error_code) {
    // The deadline may have moved since.
    if (self->deadline_.expiry() <= std::chrono::steady_clock::now()) self->End();
  });
}

void Session::ClearDeadline() { deadline_.expires_at(std::chrono::steady_clock::time_point::max()); }

void Session::Begin() {
  parser_.emplace();
  parser_->eager(true);
  parser_->body_limit(place_->is_trusted() ? shared_->max_body_bytes : shared_->limits.untrusted_body_bytes);
  EndAt(place_->is_trusted() ? std::chrono::steady_clock::now() + kIdleTimeout : trust_deadline_);
  Read();
}

void Session::Read() {
  std::array<char, kChunkBytes> chunk;
  while (true) {
    beast::error_code error = beast::http::error::need_more;
    if (!unread_.empty()) unread_.erase(0, parser_->put(asio::buffer(unread_), error));
    if (error == beast::http::error::body_limit) return Refuse(TextResponse(413, "body too large\n"));
    if (error && error != beast::http::error::need_more) return End();
    if (parser_->is_done()) return Serve();
    const Channel::Progress got = channel_.Read(chunk);
    if (got.wait != Channel::Wait::kNothing) return Await(got.wait, &Session::Read);
    if (got.bytes == 0) return End();
    unread_.append(chunk.data(), got.bytes);
  }
}

void Session::Serve() {
  ClearDeadline();
  keep_alive_ = parser_->get().keep_alive();
  ServerRequest request = FromBeast(parser_->get());
  request.peer = peer_;
  if (!place_->is_trusted()) {
    request.trust = [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->place_->Trust();
    };
  }
  // The buffers that a connection does not need while a handler keeps the Responder.
  parser_.reset();
  if (unread_.empty()) unread_ = std::string();
  auto pending = std::make_shared<Pending>();
  pending->session = weak_from_this();
  const std::string path = request.path;
  const auto handled = Guarded([&] {
    shared_->handler(std::move(request),
                     [pending](Response response) { pending->Answer(std::move(response)); });
  });
  if (handled.ok()) return;
  log::Error("request failed", {{"path", path}, {"error", handled.error().message}});
  pending->Answer(TextResponse(500, "internal error\n"));
}

void Session::Refuse(const Response& response) {
  keep_alive_ = false;
  Write(response);
}

void Session::Write(const Response& response) {
  if (response.status < 400) place_->Trust();
  // Over this connection the client would reach the same server again.
  if (response.status == static_cast<int>(beast::http::status::misdirected_request)) keep_alive_ = false;
  answer_ = TextOf(response, keep_alive_);
  written_ = 0;
  EndAt(std::chrono::steady_clock::now() + kIoTimeout);
  Send();
}

void Session::Send() {
  while (written_ < answer_.size()) {
    const Channel::Progress sent = channel_.Write(std::string_view(answer_).substr(written_));
    if (sent.wait != Channel::Wait::kNothing) return Await(sent.wait, &Session::Send);
    if (sent.bytes == 0) return End();
    written_ += sent.bytes;
  }
  answer_ = std::string();
  keep_alive_ ? Begin() : End();
}

void Session::End() {
  beast::error_code ignored;  // the peer may have closed first, and needs no answer then
  (void)socket_.shutdown(Tcp::socket::shutdown_both, ignored);
  (void)socket_.close(ignored);
  deadline_.cancel();
  shared_->sessions.Remove(shared_from_this());
}

}  // namespace lockstep::http
