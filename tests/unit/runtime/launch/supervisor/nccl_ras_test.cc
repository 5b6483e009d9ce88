#include "runtime/launch/supervisor/nccl_ras.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <rapidcheck.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <thread>

#include "runtime/common/base/file.h"
#include "runtime/common/base/json.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// NCCL 2.30.7, docs/userguide/source/troubleshooting/ras.rst, "JSON Output".
constexpr std::string_view kDocumented = R"({
  "nccl_version": "2.29.1",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2025-12-19 13:06:53",
  "communicators_count": 1,
  "communicators": [
    {
      "hash": "0xae94423cfbb2ef4a",
      "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
      "size": 2,
      "ranks_count": 1,
      "missing_ranks_count": 1,
      "ranks": [
        {
          "rank": 0,
          "host": "172.16.64.245",
          "pid": 1524344,
          "cuda_dev": 0,
          "nvml_dev": 0,
          "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          },
          "collective_counts": {
            "Broadcast": 0,
            "Reduce": 0,
            "AllGather": 0,
            "ReduceScatter": 0,
            "AllReduce": 0
          }
        }
      ],
      "missing_ranks": [
        {
          "rank": 1,
          "host": "172.16.64.245",
          "pid": 1524345,
          "cuda_dev": 1,
          "nvml_dev": 1,
          "status": {
            "unresponsive": true,
            "considered_dead": false
          }
        }
      ]
    }
  ],
  "ras": {
    "collection_time_sec": 0.000,
    "timeouts_count": 0
  }
}
)";

std::string Describe(std::string_view answer, int world) {
  const auto communicators = ParseRasAnswer(answer);
  return communicators.ok() ? DescribeRas(*communicators, world) : communicators.error().ToString();
}

TEST(ParseRasAnswer, ReadsTheExampleOfNcclsManual) {
  const auto found = ParseRasAnswer(kDocumented);
  ASSERT_TRUE(found.ok() && found->size() == 1);
  const RasCommunicator& communicator = found->front();
  EXPECT_EQ(communicator.hash, "0xae94423cfbb2ef4a");
  EXPECT_EQ(communicator.size, 2);
  ASSERT_EQ(communicator.ranks.size(), 1u);
  EXPECT_EQ(communicator.ranks.front().pid, 1524344);
  EXPECT_EQ(communicator.ranks.front().entered.size(), 5u);
  ASSERT_EQ(communicator.missing.size(), 1u);
  EXPECT_EQ(communicator.missing.front().rank.rank, 1);
  EXPECT_TRUE(communicator.missing.front().unresponsive);
}

TEST(ParseRasAnswer, LeavesOutACountThatIsNone) {
  const auto found = ParseRasAnswer(R"({"communicators": [{"ranks": [{"collective_counts": {
      "AllReduce": 9223372036854775807, "AllGather": 18446744073709551615, "Reduce": -1, "Send": "1", "Broadcast": 1}}]}]})");
  ASSERT_TRUE(found.ok());
  const auto& entered = found->front().ranks.front().entered;
  ASSERT_EQ(entered.size(), 1u);
  EXPECT_EQ(entered.front().first, "Broadcast");
}

using Counts = std::map<std::string, int64_t>;

RasCommunicator CommunicatorOf(int64_t size, const std::map<int64_t, Counts>& ranks) {
  RasCommunicator communicator{.hash = "0xa", .size = size};
  for (const auto& [rank, counts] : ranks)
    communicator.ranks.push_back(
        {.rank = rank, .host = "10.0.0.1", .pid = 100 + rank, .entered = {counts.begin(), counts.end()}});
  return communicator;
}

TEST(DescribeRas, NamesTheRankThatHasNotEnteredACollective) {
  EXPECT_EQ(DescribeRas({CommunicatorOf(4, {{0, {{"AllReduce", 7}, {"Broadcast", 1}}},
                                            {1, {{"AllReduce", 6}, {"Broadcast", 1}}},
                                            {2, {{"AllReduce", 7}, {"Broadcast", 1}}},
                                            {3, {{"AllReduce", 7}, {"Broadcast", 1}}}})},
                        4),
            "communicator 0xa (4 ranks): rank 1 has not entered AllReduce 7, 3 others have");
}

TEST(DescribeRas, NamesAllThatIsMissed) {
  EXPECT_EQ(DescribeRas({CommunicatorOf(4, {{0, {{"AllReduce", 9}}},
                                            {1, {{"AllReduce", 6}}},
                                            {2, {{"AllReduce", 8}}},
                                            {3, {{"AllReduce", 9}}}})},
                        4),
            "communicator 0xa (4 ranks): rank 1 has not entered AllReduce 7 to 9, rank 2 has not entered "
            "AllReduce 9, "
            "ranks 0, 3 have");
}

// One that runs another model than the others is the odd one out, though it is ahead.
TEST(DescribeRas, NamesTheFewThatAreAhead) {
  EXPECT_EQ(DescribeRas({CommunicatorOf(3, {{0, {{"AllGather", 3}, {"AllReduce", 5}}},
                                            {1, {{"AllGather", 2}, {"AllReduce", 6}}},
                                            {2, {{"AllGather", 2}, {"AllReduce", 6}}}})},
                        3),
            "communicator 0xa (3 ranks): ranks 1, 2 have not entered AllGather 3, rank 0 has; "
            "rank 0 has not entered AllReduce 6, 2 others have");
}

TEST(DescribeRas, NamesHostAndProcessInACommunicatorOfSomeRanks) {
  EXPECT_EQ(DescribeRas({CommunicatorOf(2, {{0, {{"AllReduce", 2}}}, {1, {{"AllReduce", 1}}}})}, 4),
            "communicator 0xa (2 ranks): rank 1 (10.0.0.1, process 101) has not entered AllReduce 2, "
            "rank 0 (10.0.0.1, process 100) has");
}

TEST(DescribeRas, NamesRanksThatAreMissing) {
  EXPECT_EQ(Describe(kDocumented, 2),
            "communicator 0xae94423cfbb2ef4a (2 ranks): rank 1 does not answer NCCL");
  RasCommunicator communicator = CommunicatorOf(2, {{0, {{"AllReduce", 2}}}});
  communicator.missing.push_back({.rank = {.rank = 1}});
  EXPECT_EQ(DescribeRas({communicator}, 2), "communicator 0xa (2 ranks): rank 1 is not in the communicator");
}

TEST(DescribeRas, CountsRanksThatAreMany) {
  std::map<int64_t, Counts> ranks;
  for (int64_t rank = 0; rank < 64; ++rank) ranks[rank] = {{"AllReduce", rank < 9 ? 1 : 2}};
  EXPECT_EQ(DescribeRas({CommunicatorOf(64, ranks)}, 64),
            "communicator 0xa (64 ranks): 9 ranks have not entered AllReduce 2, 55 others have");
}

TEST(DescribeRas, SaysThatNobodyIsBehind) {
  EXPECT_EQ(DescribeRas({CommunicatorOf(2, {{0, {{"AllReduce", 2}}}, {1, {{"AllReduce", 2}}}})}, 2),
            "all ranks have entered the same collectives");
  EXPECT_EQ(DescribeRas({}, 2), "");
}

TEST(DescribeRas, LeavesOutACommunicatorThatEnds) {
  RasCommunicator communicator = CommunicatorOf(2, {{0, {{"AllReduce", 2}}}, {1, {{"AllReduce", 1}}}});
  communicator.ranks.front().ends = true;
  EXPECT_EQ(DescribeRas({communicator}, 2), "");
}

TEST(DescribeRas, BeginsWithTheLargestAndNamesAFew) {
  std::vector<RasCommunicator> communicators;
  for (int64_t size = 2; size < 7; ++size)
    communicators.push_back(CommunicatorOf(size, {{0, {{"AllReduce", 2}}}, {1, {{"AllReduce", 1}}}}));
  const std::string text = DescribeRas(communicators, 6);
  EXPECT_TRUE(text.starts_with("communicator 0xa (6 ranks): rank 1 has not")) << text;
  EXPECT_TRUE(text.ends_with("; 2 more")) << text;
}

TEST(ParseRasAnswer, SurvivesAnAnswerThatIsCutOrDamaged) {
  EXPECT_TRUE(rc::check([] {
    std::string text(kDocumented.substr(0, *rc::gen::inRange<std::size_t>(0, kDocumented.size() + 1)));
    const auto damage = *rc::gen::container<std::vector<std::pair<std::size_t, char>>>(
        rc::gen::pair(rc::gen::inRange<std::size_t>(0, kDocumented.size()), rc::gen::arbitrary<char>()));
    for (const auto& [at, byte] : damage) {
      if (at < text.size()) text[at] = byte;
    }
    RC_ASSERT(Describe(text, 2).size() < 1000U);
  }));
}

TEST(ParseRasAnswer, SurvivesAnyValueInThePlaceOfAnother) {
  const Json documented = *ParseJson(kDocumented);
  std::vector<std::string> paths;
  const Json flat = documented.flatten();
  for (const auto& [path, value] : flat.items()) {
    for (std::string part = path; !part.empty(); part.resize(part.rfind('/'))) paths.push_back(part);
  }
  const std::vector<std::string> values = {"null",
                                           "true",
                                           "-1",
                                           "9223372036854775807",
                                           "-9223372036854775808",
                                           "18446744073709551615",
                                           "1e300",
                                           "[]",
                                           "[1]",
                                           "{}",
                                           R"({"a": 1})",
                                           R"("text")"};
  EXPECT_TRUE(rc::check([&] {
    Json json = documented;
    json[Json::json_pointer(*rc::gen::elementOf(paths))] = *ParseJson(*rc::gen::elementOf(values));
    RC_ASSERT(Describe(DumpJson(json), 2).size() < 1000U);
  }));
}

// ---- the client

// Speaks as rasClientEventLoop in NCCL's src/ras/client_support.cc does, to one client.
class RasServer {
 public:
  struct Behaviour {
    bool has_json = true;
    bool is_silent = false;  // a process that is stopped: the kernel accepts for it
    bool first_reaches_a_stopped_one = false;
    std::string status = std::string(kDocumented);
  };

  explicit RasServer(Behaviour behaviour) : behaviour_(std::move(behaviour)) {
    listener_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    if (!behaviour_.is_silent) thread_ = std::jthread([this] { Serve(); });
  }
  ~RasServer() { ::shutdown(listener_.get(), SHUT_RDWR); }
  RasServer(const RasServer&) = delete;
  RasServer& operator=(const RasServer&) = delete;

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] std::string StopAndTakeCommands() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    return commands_;
  }

 private:
  void Serve() {
    for (;;) {
      Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client.valid()) return;
      if (behaviour_.first_reaches_a_stopped_one && !stopped_.valid()) {
        stopped_ = std::move(client);
        continue;
      }
      Talk(client);
    }
  }
  void Talk(const Fd& client) {
    std::string line;
    for (char byte = 0; ::recv(client.get(), &byte, 1, 0) == 1;) {
      if (byte != '\n') {
        line += byte;
        continue;
      }
      commands_ += line + "\n";
      if (line == "STATUS") return Answer(client, behaviour_.status);
      if (line.starts_with("CLIENT PROTOCOL "))
        Answer(client, "SERVER PROTOCOL 2\n");
      else if (line.starts_with("TIMEOUT "))
        Answer(client, "OK\n");
      else if (line == "SET FORMAT json" && behaviour_.has_json)
        Answer(client, "OK\n");
      else
        Answer(client, "ERROR: Unknown command " + line + "\n");
      line.clear();
    }
  }
  static void Answer(const Fd& client, std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  Behaviour behaviour_;
  Fd listener_;
  Fd stopped_;
  int port_ = 0;
  std::string commands_;
  std::jthread thread_;
};

// Long: the test machine may be busy.
constexpr Milliseconds kPatience{60'000};

TEST(AskRas, ReturnsTheStatus) {
  RasServer server({});
  const auto answer = AskRas(server.address(), kPatience, {});
  ASSERT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_EQ(*answer, kDocumented);
  EXPECT_EQ(server.StopAndTakeCommands(), "CLIENT PROTOCOL 2\nTIMEOUT 1\nSET FORMAT json\nSTATUS\n");
}

TEST(AskRas, FindsNobodyWhereNobodyListens) {
  std::string address;
  { address = RasServer({}).address(); }
  EXPECT_EQ(AskRas(address, kPatience, {}).error().code, ErrorCode::kUnavailable);
}

// NCCL 2.24 to 2.28.3.
TEST(AskRas, DoesWithoutAServerThatHasNoJson) {
  RasServer server({.has_json = false});
  const auto answer = AskRas(server.address(), kPatience, {});
  EXPECT_EQ(answer.error().message, "unexpected answer: ERROR: Unknown command SET FORMAT json");
}

TEST(AskRas, WaitsForTheLimitAtMost) {
  RasServer server({.is_silent = true});
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(AskRas(server.address(), 700ms, {}).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 700ms);
}

// All processes of a machine listen on one port.
TEST(AskRas, FindsAnotherProcessWhereOneIsStopped) {
  RasServer server({.first_reaches_a_stopped_one = true});
  EXPECT_TRUE(AskRas(server.address(), kPatience, {}).ok());
}

TEST(AskRas, EndsWhenItIsStopped) {
  RasServer server({.is_silent = true});
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(AskRas(server.address(), kPatience, stop.get_token()).error().code, ErrorCode::kCancelled);
}

TEST(AskRas, GivesUpAnAnswerWithoutEnd) {
  RasServer server({.status = std::string(9U << 20U, ' ')});
  EXPECT_EQ(AskRas(server.address(), kPatience, {}).error().message, "the answer is too long");
}

TEST(AskRas, TakesAnAddressAsNcclDoes) {
  for (const char* address : {"nowhere.invalid:1", "28028", "[::1", "localhost:x"})
    EXPECT_EQ(AskRas(address, kPatience, {}).error().code, ErrorCode::kInvalidArgument) << address;
  RasServer server({});
  const std::string port = server.address().substr(server.address().rfind(':'));
  EXPECT_TRUE(AskRas("localhost" + port, kPatience, {}).ok());
}

TEST(HasProcessOf, FindsADescendantOfTheSupervisor) {
  RasCommunicator communicator = CommunicatorOf(2, {{0, {}}, {1, {}}});
  communicator.ranks.front().pid = std::numeric_limits<int64_t>::max();
  communicator.ranks.back().pid = ::getpid();
  EXPECT_TRUE(HasProcessOf(::getpid(), {communicator}));
  EXPECT_TRUE(HasProcessOf(::getppid(), {communicator}));
  communicator.ranks.back().pid = ::getppid();
  EXPECT_FALSE(HasProcessOf(::getpid(), {communicator}));
}

}  // namespace
}  // namespace lockstep::launch
