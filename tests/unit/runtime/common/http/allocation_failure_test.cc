// A server that briefly runs out of memory, at each large allocation in turn for a connection and its
// request. Small allocations do not fail here: Boost.Asio 1.74 does not survive a failed allocation for a
// strand.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include "runtime/common/base/file.h"
#include "runtime/common/http/server.h"

namespace {

constexpr std::size_t kLarge = 512;

// How many large allocations succeed before one fails, over all threads except the test's own; negative: none
// fails.
std::atomic<int> g_allocations_left{-1};
thread_local bool g_is_exempt = false;

}  // namespace

void* operator new(std::size_t size) {
  if (size >= kLarge && !g_is_exempt && g_allocations_left >= 0 && g_allocations_left-- == 0)
    throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace lockstep::http {
namespace {

bool IsServed(int port) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
  constexpr timeval kLimit{.tv_sec = 60, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kLimit, sizeof(kLimit));
  sockaddr_in server{};
  server.sin_family = AF_INET;
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  server.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&server), sizeof(server)), 0);
  constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nConnection: close\r\n\r\n";
  (void)::send(socket.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL);
  std::array<char, 1024> answer{};
  const ssize_t got = ::recv(socket.get(), answer.data(), answer.size(), 0);
  return got > 0 && std::string_view(answer.data()).starts_with("HTTP/1.1 200");
}

TEST(AllocationFailure, CostsAConnectionAtMost) {
  g_is_exempt = true;
  const auto server =
      StartServer({}, [](const ServerRequest&, const Responder& respond) { respond(TextResponse(200, "")); });
  ASSERT_TRUE(server.ok());
  const int port = (*server)->port();
  ASSERT_TRUE(IsServed(port)) << "what is allocated once";
  int failures = 0;
  for (int allocation = 0;; ++allocation) {
    g_allocations_left = allocation;
    (void)IsServed(port);  // it may be closed instead
    if (g_allocations_left.exchange(-1) >= 0) break;
    ++failures;
    ASSERT_TRUE(IsServed(port)) << "after allocation " << allocation << " failed";
  }
  EXPECT_GT(failures, 0);
}

}  // namespace
}  // namespace lockstep::http
