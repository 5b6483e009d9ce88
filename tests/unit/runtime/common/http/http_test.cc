// Client and server over loopback.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "runtime/common/base/file.h"
#include "runtime/common/http/address.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/http/server.h"
#include "tests/unit/runtime/common/http/http_fixture.h"

namespace lockstep::http {
namespace {

using namespace std::chrono_literals;

TEST_F(HttpTest, CarriesMethodPathQueryBodyTokenAndAnswer) {
  auto transport = Serve([](ServerRequest request, Responder respond) {
    respond(TextResponse(201, request.method + " " + request.path + "?" + request.query + " " + request.body +
                                  " " + request.headers["authorization"] + " " + request.peer));
  });
  const auto answer = transport->Send({.method = "POST", .target = "/a/b?x=1", .body = "hello"}, {});
  ASSERT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->body, "POST /a/b?x=1 hello Bearer secret 127.0.0.1");
}

std::string PeerSeenBy(const std::string& address, const std::string& host) {
  const auto server =
      StartServer({.address = address}, [](const ServerRequest& request, const Responder& respond) {
        respond(TextResponse(200, request.peer));
      });
  if (!server.ok()) return server.error().ToString();
  const auto transport = MakeTransport({.url = "http://" + JoinHostPort(host, (*server)->port())});
  const auto answer = (*transport)->Send({.target = "/"}, {});
  return answer.ok() ? answer->body : answer.error().ToString();
}

TEST_F(HttpTest, ServesAndReachesIpv6Addresses) { EXPECT_EQ(PeerSeenBy("[::1]:0", "::1"), "::1"); }

TEST_F(HttpTest, WithoutAHostServesBothFamilies) {
  for (const char* address : {":0", "[::]:0"}) {
    EXPECT_EQ(PeerSeenBy(address, "::1"), "::1") << address;
    EXPECT_EQ(PeerSeenBy(address, "127.0.0.1"), "127.0.0.1") << address;
  }
}

TEST_F(HttpTest, ALongPollIsAnsweredLaterFromAnotherThread) {
  std::mutex mutex;
  Responder held;
  auto transport = Serve([&](ServerRequest, Responder respond) {
    const std::lock_guard lock(mutex);
    held = std::move(respond);
  });
  std::jthread answerer([&](std::stop_token stop) {
    while (!stop.stop_requested()) {
      const std::lock_guard lock(mutex);
      if (held) return held(TextResponse(200, "late"));
    }
  });
  const auto answer = transport->Send({.target = "/"}, {});
  ASSERT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_EQ(answer->body, "late");
}

// Over the same connection the client would reach the same server: behind a Service a new connection may
// reach another one.
TEST_F(HttpTest, AConnectionEndsWithTheAnswerThatAnotherServerIsMeant) {
  int status = 200;
  auto transport = Serve(
      [&](const ServerRequest&, const Responder& respond) { respond(TextResponse(status, "an answer")); });
  EXPECT_FALSE(transport->Send({}, {})->headers.contains("connection"));
  status = 421;
  EXPECT_EQ(transport->Send({}, {})->headers["connection"], "close");
}

TEST_F(HttpTest, ADroppedResponderIsAnswered503) {
  auto transport = Serve([](ServerRequest, Responder) {});
  EXPECT_EQ(transport->Send({.target = "/"}, {})->status, 503);
}

TEST_F(HttpTest, AnExceptionOfTheHandlerEndsItsRequestAndNoOther) {
  auto transport = Serve([](ServerRequest request, Responder respond) {
    if (request.path == "/number") throw 7;
    if (request.path == "/error") throw std::length_error("vector::_M_default_append");
    respond(TextResponse(200, "good"));
  });
  for (const char* path : {"/error", "/number", "/error"}) {
    EXPECT_EQ(transport->Send({.target = path}, {})->status, 500);
    EXPECT_EQ(transport->Send({.target = "/"}, {})->body, "good");
  }
}

TEST_F(HttpTest, TheDeadlineEndsARequestWithoutAnAnswer) {
  std::vector<Responder> held;
  auto transport = Serve([&](ServerRequest, Responder respond) { held.push_back(std::move(respond)); });
  const auto answer = transport->Send({.target = "/", .timeout = 50ms}, {});
  EXPECT_EQ(answer.error().code, ErrorCode::kDeadlineExceeded);
  server_.reset();
}

TEST_F(HttpTest, AStopEndsAWaitAtOnce) {
  std::stop_source stop;
  std::vector<Responder> held;
  auto transport = Serve([&](ServerRequest, Responder respond) {
    held.push_back(std::move(respond));
    stop.request_stop();
  });
  EXPECT_EQ(transport->Send({.target = "/"}, stop.get_token()).error().code, ErrorCode::kCancelled);
  server_.reset();
}

// Has no room for another connection: a client waits for an answer to its first packet.
class FullListener {
 public:
  FullListener() : listener_(::socket(AF_INET, SOCK_STREAM, 0)), waiting_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 0), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    EXPECT_EQ(::connect(waiting_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    transport_ =
        MakeTransport({.url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port))}).value();
  }
  HttpTransport& transport() { return *transport_; }

 private:
  Fd listener_;
  Fd waiting_;
  std::unique_ptr<HttpTransport> transport_;
};

TEST_F(HttpTest, TheDeadlineEndsAConnectWithoutAnAnswer) {
  FullListener server;
  EXPECT_EQ(server.transport().Send({.target = "/", .timeout = 50ms}, {}).error().code,
            ErrorCode::kDeadlineExceeded);
}

TEST_F(HttpTest, AStopEndsAConnectAtOnce) {
  FullListener server;
  std::stop_source stop;
  const std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_EQ(server.transport().Send({.target = "/"}, stop.get_token()).error().code, ErrorCode::kCancelled);
}

TEST_F(HttpTest, AClosedPortIsUnavailable) {
  auto transport = Serve([](ServerRequest, Responder) {});
  server_.reset();
  EXPECT_EQ(transport->Send({.target = "/"}, {}).error().code, ErrorCode::kUnavailable);
}

TEST_F(HttpTest, StreamDeliversTheWholeBodyAndErrorBodiesAsValues) {
  auto transport = Serve([](ServerRequest request, Responder respond) {
    request.path == "/ok" ? respond(TextResponse(200, std::string(100'000, 'x')))
                          : respond(TextResponse(410, "gone"));
  });
  std::string body;
  const auto collect = [&](std::string_view chunk) {
    body += chunk;
    return true;
  };
  ASSERT_TRUE(transport->Stream({.target = "/ok"}, collect, {}).ok());
  EXPECT_EQ(body, std::string(100'000, 'x'));
  body.clear();
  const auto gone = transport->Stream({.target = "/gone"}, collect, {});
  ASSERT_TRUE(gone.ok());
  EXPECT_EQ(gone->status, 410);
  EXPECT_EQ(gone->body, "gone");
  EXPECT_EQ(body, "");
}

TEST_F(HttpTest, ReadsATokenFileAgainWhenItChanges) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("token-" + std::to_string(::getpid()))).string();
  Serve([](ServerRequest request, Responder respond) {
    respond(TextResponse(200, request.headers["authorization"]));
  });
  ASSERT_TRUE(WriteFile(file, "old\n").ok());
  const auto transport =
      MakeTransport({.url = "http://127.0.0.1:" + std::to_string(server_->port()), .token_file = file});
  ASSERT_TRUE(transport.ok());
  EXPECT_EQ((*transport)->Send({.target = "/"}, {})->body, "Bearer old");
  ASSERT_TRUE(WriteFile(file, "new\n").ok());
  EXPECT_EQ((*transport)->Send({.target = "/"}, {})->body, "Bearer new");
  std::filesystem::remove(file);
}

// Answers one request with the given bytes, then falls silent or closes.
class OneAnswer {
 public:
  OneAnswer(std::string bytes, bool closes) : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this, bytes = std::move(bytes), closes] {
      connection_ = Fd(::accept(listener_.get(), nullptr, nullptr));
      char request[4096];
      EXPECT_GT(::read(connection_.get(), request, sizeof(request)), 0);
      EXPECT_EQ(::write(connection_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
      if (closes) connection_.Reset();
    });
  }
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] std::unique_ptr<HttpTransport> transport() const {
    return MakeTransport({.url = url()}).value();
  }

 private:
  Fd listener_;
  Fd connection_;
  int port_ = 0;
  std::jthread thread_;
};

constexpr const char* kBeginOfAStream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";

TEST_F(HttpTest, AStreamThatFallsSilentEndsByItsDeadline) {
  const OneAnswer server(kBeginOfAStream, false);
  std::string body;
  const auto collect = [&](std::string_view chunk) {
    body += chunk;
    return true;
  };
  const auto end = server.transport()->Stream({.target = "/", .timeout = 2s}, collect, {});
  EXPECT_FALSE(end.ok());
  EXPECT_EQ(body, "hello") << "what came before counts";
}

TEST_F(HttpTest, AStreamThatIsCutIsNoGoodEnd) {
  const OneAnswer server(kBeginOfAStream, true);
  const auto end = server.transport()->Stream({.target = "/"}, [](std::string_view) { return true; }, {});
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().code, ErrorCode::kUnavailable);
}

TEST_F(HttpTest, AsksTheProxyThatItIsGiven) {
  const OneAnswer proxy("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nproxy", true);
  const auto transport = MakeTransport({.url = "http://nowhere.invalid", .proxy_url = proxy.url()});
  const auto answer = (*transport)->Send({.target = "/"}, {});
  ASSERT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_EQ(answer->body, "proxy");
}

TEST_F(HttpTest, RefusesABodyOverTheLimit) {
  bool handled = false;
  auto transport = Serve([&](ServerRequest, Responder respond) {
    handled = true;
    respond(TextResponse(200, ""));
  });
  const auto answer =
      transport->Send({.method = "POST", .target = "/", .body = std::string(2 << 20, 'x')}, {});
  // The server closes the connection without reading the body, so the client may get the reset before the
  // 413.
  EXPECT_TRUE(!answer.ok() || answer->status == 413);
  server_.reset();
  EXPECT_FALSE(handled);
}

TEST(StartServer, NamesAnAddressThatDoesNotParse) {
  EXPECT_EQ(StartServer({.address = "here"}, {}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(StartServer({.address = "here:80"}, {}).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::http
