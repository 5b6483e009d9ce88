#pragma once
// One connection of the server over Boost.Beast (beast_server.cc): reads a request, passes it to the handler,
// writes the answer, and waits for the next request. The io_context's threads run all sessions. While a
// handler holds a Responder, nothing is pending on the connection, so a long poll costs only memory.

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "runtime/common/base/mutex.h"
#include "runtime/common/http/channel.h"
#include "runtime/common/http/connection_ledger.h"
#include "runtime/common/http/server.h"

namespace lockstep::http {

class Session;

// The open sessions, so that the server can close them. Any thread.
class Sessions {
 public:
  // False if the server is stopping.
  [[nodiscard]] bool Add(const std::shared_ptr<Session>& session);
  void Remove(const std::shared_ptr<Session>& session);
  [[nodiscard]] std::set<std::shared_ptr<Session>> TakeAll();

 private:
  Mutex mutex_;
  bool is_closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<Session>> open_ LOCKSTEP_GUARDED_BY(mutex_);
};

// What every session needs of its server; outlives the server while a Responder exists.
struct SharedBySessions {
  explicit SharedBySessions(const ServerOptions& options);

  boost::asio::io_context io;
  Handler handler;
  const ServerCertificate* const certificate;
  const std::size_t max_body_bytes;
  const ConnectionLimits limits;
  ConnectionLedger ledger;
  Sessions sessions;
};

// All private methods run on the strand of the socket, as a Step, unless they say otherwise.
class Session final : public std::enable_shared_from_this<Session> {
 public:
  // Without a context the session is plain.
  Session(std::shared_ptr<SharedBySessions> shared, std::string peer, boost::asio::ip::tcp::socket socket,
          ssl_ctx_st* context);

  // Once. Any thread.
  void Start(ConnectionLedger::Place place);
  // Any thread.
  void Close();

 private:
  struct Pending;

  // Calls `work` while the connection is open. If it throws, the connection is closed.
  template <typename Work>
  void Step(Work&& work);
  // Any thread.
  template <typename Work>
  void Post(Work work);

  void Await(Channel::Wait wait, void (Session::*next)());
  void EndAt(std::chrono::steady_clock::time_point when);
  void ClearDeadline();
  // Waits for the next request.
  void Begin();
  void Read();
  void Serve();
  // Does not read the rest of the request.
  void Refuse(const Response& response);
  void Write(const Response& response);
  void Send();
  void End();

  std::shared_ptr<SharedBySessions> shared_;
  std::optional<ConnectionLedger::Place> place_;  // in the ledger of shared_
  const std::string peer_;
  boost::asio::ip::tcp::socket socket_;
  Channel channel_;
  boost::asio::steady_timer deadline_{socket_.get_executor()};
  const std::chrono::steady_clock::time_point trust_deadline_;
  std::string unread_;  // received but not parsed yet
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::string answer_;
  std::size_t written_ = 0;  // bytes of it
  bool keep_alive_ = false;
};

}  // namespace lockstep::http
