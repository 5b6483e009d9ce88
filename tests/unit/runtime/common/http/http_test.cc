// Client and server over loopback.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/http/address.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/http/server.h"
#include "tests/support/eventually.h"

namespace lockstep::http {
namespace {

using namespace std::chrono_literals;

class HttpTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { InitializeHttpThreads(2); }

  std::unique_ptr<HttpTransport> Serve(Handler handler, const ConnectionLimits& limits = {}) {
    auto server = StartServer({.limits = limits}, std::move(handler));
    EXPECT_TRUE(server.ok());
    server_ = std::move(server).value();
    auto transport =
        MakeTransport({.url = "http://127.0.0.1:" + std::to_string(server_->port()), .token = "secret"});
    EXPECT_TRUE(transport.ok());
    return std::move(transport).value();
  }

  std::unique_ptr<HttpServer> server_;
};

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

// Captures the output to stderr during its lifetime. Reading it opens no file.
class CapturedStderr {
 public:
  CapturedStderr() : file_(std::tmpfile()), before_(::dup(STDERR_FILENO)) {
    EXPECT_GE(::dup2(::fileno(file_), STDERR_FILENO), 0);
  }
  ~CapturedStderr() {
    ::dup2(before_.get(), STDERR_FILENO);
    std::fclose(file_);
  }
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;
  [[nodiscard]] std::ptrdiff_t lines() const {
    std::string text(1 << 20, '\0');
    const ssize_t got = ::pread(::fileno(file_), text.data(), text.size(), 0);
    return std::count(text.begin(), text.begin() + std::max<ssize_t>(got, 0), '\n');
  }

 private:
  std::FILE* file_;
  Fd before_;
};

// During its lifetime no further file can be opened.
class NoOpenFileLeft {
 public:
  NoOpenFileLeft() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const Fd next(::dup(STDERR_FILENO));
    const rlimit used_up{.rlim_cur = static_cast<rlim_t>(next.get()), .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &used_up), 0);
  }
  ~NoOpenFileLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoOpenFileLeft(const NoOpenFileLeft&) = delete;
  NoOpenFileLeft& operator=(const NoOpenFileLeft&) = delete;

 private:
  rlimit before_{};
};

Fd Socket() { return Fd(::socket(AF_INET, SOCK_STREAM, 0)); }

int ConnectTo(int port, const Fd& socket) {
  sockaddr_in server{};
  server.sin_family = AF_INET;
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  server.sin_port = htons(static_cast<uint16_t>(port));
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&server), sizeof(server));
}

TEST_F(HttpTest, WithoutFilesLeftAConnectionWaitsAndTheLogSaysSoOnce) {
  const auto before = Serve([](ServerRequest, Responder respond) { respond(TextResponse(200, "served")); });
  // UBSan opens a pipe for each new type, and reports a wrong type without one. These are the
  // types.
  ASSERT_EQ(before->Send({.target = "/"}, {})->body, "served");
  (void)PauseFor(1ms, {});
  log::Info("before the files are used up");
  const Fd client = Socket();
  const CapturedStderr captured;
  {
    const NoOpenFileLeft none;
    ASSERT_EQ(ConnectTo(server_->port(), client), 0);
    ASSERT_TRUE(lockstep::testing::Eventually([&] { return captured.lines() > 0; }));
  }
  constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(::send(client.get(), kRequest.data(), kRequest.size(), 0), static_cast<ssize_t>(kRequest.size()));
  std::array<char, 1024> answer{};
  EXPECT_GT(::recv(client.get(), answer.data(), answer.size(), 0), 0) << "served once there are files again";
  EXPECT_EQ(captured.lines(), 1);
}

// A connection from another loopback address of this machine.
class Connection {
 public:
  Connection(int port, const char* from) : socket_(Socket()) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, from, &address.sin_addr);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(ConnectTo(port, socket_), 0);
  }
  // The status; 0 if the server closed the connection instead.
  [[nodiscard]] int Get(const std::string& path, std::size_t body_bytes = 0) const {
    const std::string length = "Content-Length: " + std::to_string(body_bytes);
    const std::string request =
        "GET " + path + " HTTP/1.1\r\n" + length + "\r\n\r\n" + std::string(body_bytes, 'x');
    (void)::send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL);
    std::array<char, 1024> answer{};
    const ssize_t got = ::recv(socket_.get(), answer.data(), answer.size() - 1, 0);
    int status = 0;
    return got > 0 && std::sscanf(answer.data(), "HTTP/1.1 %d", &status) == 1 ? status : 0;
  }
  void Send(std::string_view bytes) const {
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // All bytes received until `end` has arrived.
  [[nodiscard]] std::string ReceiveUntil(std::string_view end) const {
    std::string text;
    char byte = 0;
    while (!text.ends_with(end) && ::recv(socket_.get(), &byte, 1, 0) == 1) text += byte;
    return text;
  }
  // Waits until the server closes the connection.
  void AwaitEnd() const {
    char byte = 0;
    EXPECT_LE(::recv(socket_.get(), &byte, 1, 0), 0);
  }

 private:
  Fd socket_;
};

// As in the rendezvous: one path needs authorisation.
void ServePath(const ServerRequest& request, const Responder& respond) {
  respond(TextResponse(request.path == "/good" ? 200 : 401, ""));
}

TEST_F(HttpTest, AnAddressOverItsLimitIsRefusedAndOthersAreServed) {
  Serve(ServePath, {.untrusted_per_peer = 2});
  const Connection first(server_->port(), "127.0.0.2");
  const Connection second(server_->port(), "127.0.0.2");
  EXPECT_EQ(first.Get("/bad"), 401);
  EXPECT_EQ(second.Get("/bad"), 401);
  Connection(server_->port(), "127.0.0.2").AwaitEnd();
  EXPECT_EQ(Connection(server_->port(), "127.0.0.1").Get("/good"), 200);
  EXPECT_EQ(first.Get("/good"), 200) << "what it has is left alone";
  EXPECT_EQ(Connection(server_->port(), "127.0.0.2").Get("/good"), 200) << "a trusted one leaves room";
}

TEST_F(HttpTest, AConnectionWithoutASuccessfulRequestEndsSoon) {
  Serve(ServePath, {.until_trusted = 3s});
  const Connection trusted(server_->port(), "127.0.0.1");
  ASSERT_EQ(trusted.Get("/good"), 200);
  const Connection silent(server_->port(), "127.0.0.1");
  const Connection refused(server_->port(), "127.0.0.1");
  (void)refused.Get("/bad");
  silent.AwaitEnd();
  refused.AwaitEnd();
  EXPECT_EQ(trusted.Get("/good"), 200) << "it may wait for long";
}

// From many addresses, each within its limits.
TEST_F(HttpTest, IdleConnectionsDoNotBlockOthers) {
  Serve(ServePath, {.all = 8});
  const Connection member(server_->port(), "127.0.0.1");
  ASSERT_EQ(member.Get("/good"), 200);
  std::vector<std::unique_ptr<Connection>> silent;
  for (int i = 0; i < 50; ++i) {
    silent.push_back(
        std::make_unique<Connection>(server_->port(), ("127.0.1." + std::to_string(i + 1)).c_str()));
  }
  EXPECT_EQ(Connection(server_->port(), "127.0.0.2").Get("/good"), 200);
  EXPECT_EQ(member.Get("/good"), 200);
  silent.front()->AwaitEnd();
}

TEST_F(HttpTest, AnAuthorisedRequestThatWaitsIsNotDisplaced) {
  std::mutex mutex;
  Responder held;
  Serve(
      [&](const ServerRequest& request, Responder respond) {
        if (request.path != "/poll") return ServePath(request, respond);
        request.trust();
        const std::lock_guard lock(mutex);
        held = std::move(respond);
      },
      {.all = 8});
  const Connection member(server_->port(), "127.0.0.1");
  std::jthread poll([&] { EXPECT_EQ(member.Get("/poll"), 200); });
  ASSERT_TRUE(lockstep::testing::Eventually([&] {
    const std::lock_guard lock(mutex);
    return held != nullptr;
  }));
  std::vector<std::unique_ptr<Connection>> silent;
  for (int i = 0; i < 50; ++i) {
    silent.push_back(
        std::make_unique<Connection>(server_->port(), ("127.0.1." + std::to_string(i + 1)).c_str()));
  }
  silent.front()->AwaitEnd();
  EXPECT_EQ(Connection(server_->port(), "127.0.0.2").Get("/good"), 200);
  const std::lock_guard lock(mutex);
  held(TextResponse(200, "at last"));
}

TEST_F(HttpTest, ReadsRequestsThatArriveInPiecesOrTogether) {
  Serve([](const ServerRequest& request, const Responder& respond) {
    respond(TextResponse(200, request.body));
  });
  const Connection connection(server_->port(), "127.0.0.1");
  const std::string request = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
  for (const char byte : request) connection.Send({&byte, 1});
  EXPECT_EQ(connection.ReceiveUntil("abc").rfind("HTTP/1.1 200 OK\r\n", 0), 0U);
  connection.Send(request + "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\ndef");
  EXPECT_NE(connection.ReceiveUntil("def").find("abc"), std::string::npos);
}

TEST_F(HttpTest, TheFirstRequestIsSmall) {
  Serve(ServePath, {.untrusted_body_bytes = 1'000});
  EXPECT_NE(Connection(server_->port(), "127.0.0.1").Get("/good", 100'000), 200);
  const Connection trusted(server_->port(), "127.0.0.1");
  EXPECT_EQ(trusted.Get("/good", 1'000), 200);
  EXPECT_EQ(trusted.Get("/good", 100'000), 200);
}

TEST(StartServer, NamesAnAddressThatDoesNotParse) {
  EXPECT_EQ(StartServer({.address = "here"}, {}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(StartServer({.address = "here:80"}, {}).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::http
