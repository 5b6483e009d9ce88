#include "runtime/launch/program/rank_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/common/base/queue.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// A connection as a program makes it.
class Program {
 public:
  explicit Program(const std::string& name) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    is_connected_ = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0;
  }
  [[nodiscard]] bool is_connected() const { return is_connected_; }
  void Say(const std::string& text) const {
    for (std::size_t sent = 0; sent < text.size();) {
      const ssize_t n = ::send(socket_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }
  // Empty at the end of the connection.
  [[nodiscard]] std::string ReadLine() const {
    std::string line;
    for (char c = 0; ::recv(socket_.get(), &c, 1, 0) == 1 && c != '\n';) line.push_back(c);
    return line;
  }
  void Close() { socket_.Reset(); }

 private:
  Fd socket_;
  bool is_connected_ = false;
};

class RankSocketTest : public ::testing::Test {
 protected:
  RankSocketTest() {
    auto socket =
        RankSocket::Listen({.on_message = [this](protocol::FromRank m) { Note(protocol::Encode(m)); },
                            .on_end = [this] { Note("end"); }});
    EXPECT_TRUE(socket.ok());
    if (socket.ok()) socket_ = std::move(socket).value();
  }
  void Note(std::string what) { events_.Push(std::move(what)); }
  std::string Next() {
    return events_.PopUntil(std::chrono::steady_clock::now() + 300s, {}).value_or("nothing came");
  }
  bool HasMore() { return events_.PopUntil(std::chrono::steady_clock::now(), {}).has_value(); }
  static std::string Ready(int64_t step) { return protocol::Encode(protocol::Ready{.step = step}); }

  Queue<std::string> events_;
  std::unique_ptr<RankSocket> socket_;
};

TEST_F(RankSocketTest, CarriesMessagesInBothDirections) {
  EXPECT_THAT(socket_->name(), ::testing::MatchesRegex("lockstep-rank-[0-9a-f]{32}"));
  Program program(socket_->name());
  ASSERT_TRUE(program.is_connected());
  const std::string ready = Ready(7);
  program.Say(ready.substr(0, 5));
  program.Say(ready.substr(5) + "\n" + Ready(8) + "\n");
  EXPECT_EQ(Next(), ready);
  EXPECT_EQ(Next(), Ready(8));
  EXPECT_EQ(socket_->program(), ::getpid());
  socket_->Send(protocol::RoundOver{3, protocol::LeaveMode::kYield});
  const auto got = protocol::DecodeToRank(program.ReadLine());
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(std::get<protocol::RoundOver>(*got).round, 3);
}

TEST_F(RankSocketTest, ASendWithoutAConnectionIsLost) {
  socket_->Send(protocol::Ping{});
  EXPECT_EQ(socket_->program(), 0);
  Program program(socket_->name());
  program.Say(Ready(1) + "\n");
  EXPECT_EQ(Next(), Ready(1));
  socket_->Send(protocol::Save{});
  EXPECT_EQ(program.ReadLine(), protocol::Encode(protocol::Save{}));
}

TEST_F(RankSocketTest, IgnoresALineThatCannotBeRead) {
  Program program(socket_->name());
  program.Say("no JSON\n{\"type\":\"unknown\"}\n" + Ready(1) + "\n");
  EXPECT_EQ(Next(), Ready(1));
}

TEST_F(RankSocketTest, AnEndlessLineEndsTheConnection) {
  Program program(socket_->name());
  program.Say(std::string(2 * RankMessages::kLongestLine, 'x'));
  EXPECT_EQ(Next(), "end");
  EXPECT_EQ(program.ReadLine(), "");
}

TEST_F(RankSocketTest, ASecondConnectionIsClosedAtOnce) {
  Program first(socket_->name());
  first.Say(Ready(1) + "\n");
  EXPECT_EQ(Next(), Ready(1));
  Program second(socket_->name());
  ASSERT_TRUE(second.is_connected());
  EXPECT_EQ(second.ReadLine(), "");
  first.Say(Ready(2) + "\n");
  EXPECT_EQ(Next(), Ready(2)) << "the first one is still served";
}

TEST_F(RankSocketTest, AnotherConnectionMayFollowTheFirst) {
  {
    Program first(socket_->name());
    first.Say(Ready(1) + "\n");
  }
  Program second(socket_->name());
  second.Say(Ready(2) + "\n");
  EXPECT_EQ(Next(), Ready(1));
  EXPECT_EQ(Next(), "end");
  EXPECT_EQ(Next(), Ready(2));
}

TEST_F(RankSocketTest, DeliversWhatHasArrivedBeforeItCloses) {
  for (int i = 0; i < 50; ++i) {
    SCOPED_TRACE(i);
    Program program(socket_->name());
    program.Say(Ready(i) + "\n");
    program.Close();
    socket_.reset();
    EXPECT_EQ(Next(), Ready(i)) << "also if it was not accepted yet";
    while (HasMore()) continue;
    auto socket =
        RankSocket::Listen({.on_message = [this](protocol::FromRank m) { Note(protocol::Encode(m)); },
                            .on_end = [this] { Note("end"); }});
    ASSERT_TRUE(socket.ok());
    socket_ = std::move(socket).value();
  }
}

TEST_F(RankSocketTest, IsGoneWithItsObject) {
  const std::string name = socket_->name();
  socket_.reset();
  EXPECT_FALSE(Program(name).is_connected());
}

// Each message takes its place in the buffer of the socket, which has an end.
TEST_F(RankSocketTest, AProgramThatDoesNotReadLosesItsConnectionInsteadOfBlocking) {
  Program program(socket_->name());
  program.Say(Ready(1) + "\n");
  EXPECT_EQ(Next(), Ready(1));
  const protocol::RankAssignment big{.round = 1, .hosts = std::vector<std::string>(1000, "10.0.0.1")};
  for (int i = 0; i < 1000; ++i) socket_->Send(big);
  EXPECT_EQ(Next(), "end");
}

TEST_F(RankSocketTest, RefusesAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::setuid(kNobody) != 0) ::_exit(2);
    Program program(socket_->name());
    program.Say(Ready(1) + "\n");
    ::_exit(program.is_connected() && program.ReadLine().empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  socket_.reset();
  EXPECT_FALSE(HasMore());
}

}  // namespace
}  // namespace lockstep::launch
