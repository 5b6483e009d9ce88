// What a server does with connections: how many it accepts, from whom, and how it reads them.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>
#include <thread>

#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/pause.h"
#include "tests/support/eventually.h"
#include "tests/unit/runtime/common/http/http_fixture.h"

namespace lockstep::http {
namespace {

using namespace std::chrono_literals;

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

}  // namespace
}  // namespace lockstep::http
