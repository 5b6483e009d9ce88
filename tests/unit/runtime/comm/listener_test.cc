#include "runtime/comm/listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace lockstep::comm {
namespace {

bool CanConnect(int port) {
  const Fd fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

TEST(Listener, AcceptsConnectionsBeforeTheStoreServes) {
  for (const char* address : {"", "127.0.0.1"}) {
    const Result<Listener> listener = Listener::Open(address);
    ASSERT_TRUE(listener.ok()) << listener.error().ToString();
    EXPECT_TRUE(CanConnect(listener->port())) << "address \"" << address << '"';
  }
}

TEST(Listener, RefusesAnAddressThatIsNotOurs) {
  EXPECT_FALSE(Listener::Open("192.0.2.1").ok());
  const Result<Listener> name = Listener::Open("not-a-number");
  ASSERT_FALSE(name.ok());
  EXPECT_EQ(name.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::comm
