#include "runtime/common/protocol/control_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <future>

#include "runtime/common/base/queue.h"

namespace lockstep::protocol {
namespace {

using namespace std::chrono_literals;

constexpr auto kHang = 300s;

struct Ends {
  Ends() {
    std::array<int, 2> fds{};
    LOCKSTEP_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()) == 0);
    rank = Fd(fds[0]);
    supervisor = Fd(fds[1]);
  }
  void Say(std::string_view text) const {
    LOCKSTEP_CHECK(::send(supervisor.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
                   static_cast<ssize_t>(text.size()));
  }
  Fd rank;
  Fd supervisor;
};

TEST(ControlLink, DeliversMessagesHoweverTheyAreCut) {
  Ends ends;
  Queue<ToRank> heard;
  ControlLink link(std::move(ends.rank));
  link.Start({.on_message = [&](const ToRank& message) { heard.Push(message); }, .on_end = [] {}});
  const std::string over = Encode(RoundOver{7, LeaveMode::kYield}) + "\n";
  const std::string stop = Encode(Stop{5}) + "\n";
  ends.Say(over.substr(0, 9));
  ends.Say(over.substr(9) + "not json\n" + stop.substr(0, 3));
  ends.Say(stop.substr(3));
  const auto first = heard.PopUntil(std::chrono::steady_clock::now() + kHang, {});
  ASSERT_TRUE(first.has_value());
  ASSERT_TRUE(std::holds_alternative<RoundOver>(*first));
  EXPECT_EQ(std::get<RoundOver>(*first).round, 7);
  const auto second = heard.PopUntil(std::chrono::steady_clock::now() + kHang, {});
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(std::get<Stop>(*second).grace_seconds, 5);
}

TEST(ControlLink, ReportsThatTheSupervisorIsGoneAndSendsNothingMore) {
  Ends ends;
  std::promise<void> ended;
  ControlLink link(std::move(ends.rank));
  link.Start({.on_message = [](const ToRank&) {}, .on_end = [&] { ended.set_value(); }});
  ends.supervisor.Reset();
  EXPECT_EQ(ended.get_future().wait_for(kHang), std::future_status::ready);
  link.Send(Finished{1});
}

TEST(ControlLink, SendsWholeLines) {
  Ends ends;
  ControlLink link(std::move(ends.rank));
  link.Send(Ready{12, 345, 1e12});
  std::array<char, 256> bytes{};
  const ssize_t got = ::recv(ends.supervisor.get(), bytes.data(), bytes.size(), 0);
  ASSERT_GT(got, 0);
  const std::string line(bytes.data(), static_cast<std::size_t>(got));
  EXPECT_EQ(line.back(), '\n');
  const auto message = DecodeFromRank(line);
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(std::get<Ready>(*message).store_port, 345);
  EXPECT_EQ(std::get<Ready>(*message).flops_per_sample, 1e12);
}

}  // namespace
}  // namespace lockstep::protocol
