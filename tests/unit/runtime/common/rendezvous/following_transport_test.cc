#include "runtime/common/rendezvous/following_transport.h"

#include <gtest/gtest.h>

#include <atomic>

#include "runtime/common/base/json.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/http/server.h"

namespace lockstep::rendezvous {
namespace {

// One replica of the operator: it answers, or names the host.
class Replica {
 public:
  Replica() {
    auto started =
        http::StartServer({}, [this](const http::ServerRequest& request, const http::Responder& respond) {
          ++requests;
          token = http::BearerTokenOf(request);
          const Replica* const host = names;
          if (host == nullptr) return respond(http::TextResponse(200, address()));
          respond(http::JsonResponse(421, DumpJson({{"host", host->address()}})));
        });
    EXPECT_TRUE(started.ok());
    server_ = std::move(started).value();
    address_ = "127.0.0.1:" + std::to_string(server_->port());
  }
  [[nodiscard]] const std::string& address() const { return address_; }
  void Stop() { server_.reset(); }

  std::atomic<const Replica*> names = nullptr;  // the host, if that is another replica
  std::atomic<int> requests = 0;
  std::string token;

 private:
  std::string address_;
  std::unique_ptr<http::HttpServer> server_;
};

class FollowingTransportTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { http::InitializeHttpThreads(2); }

  // The replica that answered; empty: none did.
  std::string Ask() {
    const auto answer = transport_->Send({.method = "POST", .target = "/v1/heartbeat"}, {});
    return answer.ok() && answer->status == 200 ? answer->body : "";
  }

  Replica common_;
  Replica first_;
  Replica second_;
  std::unique_ptr<http::HttpTransport> transport_ =
      FollowingTransport::Make({.url = "http://" + common_.address(), .token = "secret"}).value();
};

TEST_F(FollowingTransportTest, StaysWhereItIsAnswered) {
  EXPECT_EQ(Ask(), common_.address());
  EXPECT_EQ(first_.requests, 0);
}

TEST_F(FollowingTransportTest, SendsToTheHostAndKeepsIt) {
  common_.names = &first_;
  EXPECT_EQ(Ask(), first_.address());
  EXPECT_EQ(first_.token, "secret");
  EXPECT_EQ(Ask(), first_.address());
  EXPECT_EQ(common_.requests, 1) << "the host is known";
}

TEST_F(FollowingTransportTest, FollowsAJobThatMoves) {
  common_.names = &first_;
  EXPECT_EQ(Ask(), first_.address());
  first_.names = &second_;
  EXPECT_EQ(Ask(), second_.address());
  EXPECT_EQ(common_.requests, 1);
}

TEST_F(FollowingTransportTest, AsksTheOthersOnceTheHostDoesNotAnswer) {
  common_.names = &first_;
  EXPECT_EQ(Ask(), first_.address());
  first_.Stop();
  EXPECT_EQ(Ask(), "") << "the others still name the one that is gone";
  common_.names = &second_;
  EXPECT_EQ(Ask(), second_.address());
}

TEST_F(FollowingTransportTest, GivesUpWhereReplicasNameEachOther) {
  common_.names = &first_;
  first_.names = &second_;
  second_.names = &first_;
  const auto answer = transport_->Send({.method = "POST", .target = "/v1/heartbeat"}, {});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 421);
}

}  // namespace
}  // namespace lockstep::rendezvous
