#include "runtime/launch/supervisor/reporter.h"

#include <gtest/gtest.h>

#include "tests/support/fake_transport.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

class ReporterTest : public ::testing::Test {
 protected:
  // How often the report is sent if the host answers with these codes, then with 200.
  std::size_t TimesSent(std::vector<int> answers) {
    transport_.answer = [&](const http::Request&) {
      const std::size_t number = transport_.requests.size();
      return http::Response{.status = number <= answers.size() ? answers[number - 1] : 200, .body = "{}"};
    };
    rendezvous::RendezvousClient client(transport_);
    Reporter reporter(client, [](int64_t, const Result<protocol::WatchAnswer>&) {});
    reporter.Send(protocol::BrokenReport{.round = 1, .reason = "a peer is gone"});
    reporter.Flush(120s);
    return transport_.requests.size();
  }

  testing::FakeTransport transport_;
};

TEST_F(ReporterTest, SendsAgainWhatTheHostCouldNotTakeNow) { EXPECT_EQ(TimesSent({503, 503}), 3U); }

TEST_F(ReporterTest, DoesNotSendAgainWhatIsRefused) { EXPECT_EQ(TimesSent({403}), 1U); }

}  // namespace
}  // namespace lockstep::launch
