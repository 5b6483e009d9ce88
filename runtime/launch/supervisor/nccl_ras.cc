#include "runtime/launch/supervisor/nccl_ras.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "runtime/common/base/file.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/http/address.h"
#include "runtime/launch/process/descendants.h"

namespace lockstep::launch {
namespace {

using std::chrono::steady_clock;

constexpr const char* kDefaultAddress = "localhost:28028";
// A rank has about 600 bytes in each of its communicators.
constexpr std::size_t kMostBytes = 8U << 20U;
constexpr std::size_t kLongestLine = 256;
// All processes of a machine listen on the same port, and the kernel picks one of them. A stopped one accepts the
// connection, but does not answer; the next connection may reach another process.
constexpr Milliseconds kHandshakeTime{300};
constexpr Milliseconds kStopCheck{50};
// How many ranks or communicators a text names.
constexpr std::size_t kMostRanks = 8;
constexpr std::size_t kMostCommunicators = 3;
constexpr std::size_t kLongestField = 64;
constexpr std::size_t kLongestText = 500;

// ---- the answer

const Json& ArrayAt(const Json& object, std::string_view key) {
  static const Json empty = Json::array();
  const Json* const found = FindJson(object, {key});
  return found != nullptr && found->is_array() ? *found : empty;
}

RasRank RankFrom(const Json& json) {
  RasRank rank{.rank = IntAt(json, {"rank"}, -1),
               .host = Truncate(StringAt(json, {"host"}), kLongestField),
               .pid = IntAt(json, {"pid"}, -1),
               .ends = BoolAt(json, {"status", "finalize_called"}) ||
                       BoolAt(json, {"status", "destroy_flag"}) || BoolAt(json, {"status", "abort_flag"})};
  const Json* const counts = FindJson(json, {"collective_counts"});
  if (counts == nullptr || !counts->is_object()) return rank;
  for (const auto& [name, unused] : counts->items()) {
    const int64_t count = IntAt(*counts, {name}, -1);
    if (count >= 0 && count < std::numeric_limits<int64_t>::max())
      rank.entered.emplace_back(Truncate(name, kLongestField), count);
  }
  return rank;
}

RasCommunicator CommunicatorFrom(const Json& json) {
  RasCommunicator communicator{.hash = Truncate(StringAt(json, {"hash"}), kLongestField),
                               .size = IntAt(json, {"size"})};
  for (const Json& rank : ArrayAt(json, "ranks")) communicator.ranks.push_back(RankFrom(rank));
  for (const Json& rank : ArrayAt(json, "missing_ranks")) {
    communicator.missing.push_back({RankFrom(rank), BoolAt(rank, {"status", "unresponsive"})});
  }
  return communicator;
}

// ---- the text

using Ranks = std::vector<const RasRank*>;

std::string NameOf(const RasRank& rank, bool is_world) {
  const std::string number = std::to_string(rank.rank);
  return is_world ? number : number + " (" + rank.host + ", process " + std::to_string(rank.pid) + ")";
}

std::string NamesOf(const Ranks& ranks, bool is_world) {
  if (ranks.size() > kMostRanks) return std::to_string(ranks.size()) + " ranks";
  std::vector<std::string> names;
  names.reserve(ranks.size());
  for (const RasRank* const rank : ranks) names.push_back(NameOf(*rank, is_world));
  return (ranks.size() == 1 ? "rank " : "ranks ") + lockstep::Join(names, ", ");
}

std::string DescribeMissing(const RasCommunicator& communicator, bool is_world) {
  Ranks unresponsive;
  Ranks absent;
  for (const RasMissingRank& missing : communicator.missing)
    (missing.unresponsive ? unresponsive : absent).push_back(&missing.rank);
  std::vector<std::string> parts;
  if (!unresponsive.empty())
    parts.push_back(NamesOf(unresponsive, is_world) + (unresponsive.size() == 1 ? " does" : " do") +
                    " not answer NCCL");
  if (!absent.empty())
    parts.push_back(NamesOf(absent, is_world) + (absent.size() == 1 ? " is" : " are") +
                    " not in the communicator");
  return lockstep::Join(parts, ", ");
}

// "rank 5 has not entered AllReduce 1234, 7 others have". Empty if all ranks have entered the same number.
std::string DescribeCollective(const std::string& name, const std::map<int64_t, Ranks>& by_count,
                               bool is_world) {
  if (by_count.size() < 2) return "";
  const auto& [most, first] = *by_count.rbegin();
  std::vector<std::string> parts;
  std::size_t behind = 0;
  for (const auto& [count, ranks] : by_count) {
    if (count == most) break;
    behind += ranks.size();
    const std::string missed =
        std::to_string(count + 1) + (count + 1 == most ? "" : " to " + std::to_string(most));
    parts.push_back(NamesOf(ranks, is_world) + (ranks.size() == 1 ? " has" : " have") + " not entered " +
                    name + " " + missed);
  }
  const std::string have = first.size() == 1 ? " has" : " have";
  const bool are_most = first.size() > behind;
  parts.push_back((are_most ? std::to_string(first.size()) + " others" : NamesOf(first, is_world)) + have);
  return lockstep::Join(parts, ", ");
}

std::string DescribeCommunicator(const RasCommunicator& communicator, int world) {
  const bool is_world = communicator.size == world;
  std::map<std::string, std::map<int64_t, Ranks>> collectives;
  for (const RasRank& rank : communicator.ranks) {
    for (const auto& [name, count] : rank.entered) collectives[name][count].push_back(&rank);
  }
  std::vector<std::string> parts;
  if (!communicator.missing.empty()) parts.push_back(DescribeMissing(communicator, is_world));
  for (const auto& [name, by_count] : collectives) {
    std::string text = DescribeCollective(name, by_count, is_world);
    if (!text.empty()) parts.push_back(std::move(text));
  }
  if (parts.empty()) return "";
  return "communicator " + communicator.hash + " (" + std::to_string(communicator.size) +
         " ranks): " + lockstep::Join(parts, "; ");
}

// ---- the client

Error SystemError(const char* what) {
  return {ErrorCode::kUnavailable, std::string(what) + ": " + std::strerror(errno)};
}

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

std::optional<Address> AddressOf(const std::string& host, int port) {
  Address address;
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address.bytes);
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address.bytes);
  if (::inet_pton(AF_INET, host.c_str(), &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(static_cast<in_port_t>(port));
    address.size = sizeof ipv4;
    return address;
  }
  if (::inet_pton(AF_INET6, host.c_str(), &ipv6.sin6_addr) != 1) return std::nullopt;
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(static_cast<in_port_t>(port));
  address.size = sizeof ipv6;
  return address;
}

// Other names are not resolved: that may take longer than the answer is of use.
Result<std::vector<Address>> AddressesOf(const std::string& text) {
  LOCKSTEP_TRY(const http::HostPort at, http::SplitHostPort(text));
  const std::vector<std::string> hosts =
      at.host == "localhost" ? std::vector<std::string>{"127.0.0.1", "::1"} : std::vector{at.host};
  std::vector<Address> addresses;
  for (const std::string& host : hosts) {
    if (const auto address = AddressOf(host, at.port)) addresses.push_back(*address);
  }
  if (addresses.empty())
    return Error{ErrorCode::kInvalidArgument,
                 "NCCL_RAS_ADDR: " + at.host + " is neither an IP address nor localhost"};
  return addresses;
}

// One conversation with a RAS thread.
class RasConnection {
 public:
  static Result<RasConnection> Open(const Address& address, SteadyTime deadline,
                                    const std::stop_token& stop) {
    RasConnection connection(
        Fd(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), stop);
    const int fd = connection.fd_.get();
    if (fd < 0) return SystemError("socket");
    const auto* const to = reinterpret_cast<const sockaddr*>(&address.bytes);
    if (::connect(fd, to, address.size) == 0) return connection;
    if (errno != EINPROGRESS) return SystemError("connect");
    LOCKSTEP_TRY(connection.Await(POLLOUT, deadline));
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    errno = error;
    if (error != 0) return SystemError("connect");
    return connection;
  }

  Result<void> Send(std::string_view text, SteadyTime deadline) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        text.remove_prefix(static_cast<std::size_t>(sent));
      } else if (errno != EAGAIN && errno != EINTR) {
        return SystemError("send");
      } else {
        LOCKSTEP_TRY(Await(POLLOUT, deadline));
      }
    }
    return {};
  }

  // One line without its end.
  Result<std::string> ReadLine(SteadyTime deadline) {
    for (;;) {
      const std::size_t end = unread_.find('\n');
      if (end != std::string::npos) {
        std::string line = unread_.substr(0, end);
        unread_.erase(0, end + 1);
        return line;
      }
      if (unread_.size() > kLongestLine) return Error{ErrorCode::kDataLoss, "no answer of NCCL's"};
      LOCKSTEP_TRY(const bool more, ReadSome(deadline));
      if (!more) return Error{ErrorCode::kDataLoss, "the answer ends early"};
    }
  }

  // What follows, until NCCL closes the connection.
  Result<std::string> ReadRest(SteadyTime deadline) {
    for (;;) {
      LOCKSTEP_TRY(const bool more, ReadSome(deadline));
      if (!more) return std::move(unread_);
      if (unread_.size() > kMostBytes) return Error{ErrorCode::kDataLoss, "the answer is too long"};
    }
  }

  // Sends a command and expects an answer that begins with `expected`.
  Result<void> Say(std::string_view command, std::string_view expected, SteadyTime deadline) {
    LOCKSTEP_TRY(Send(command, deadline));
    LOCKSTEP_TRY(const std::string answer, ReadLine(deadline));
    if (!answer.starts_with(expected))
      return Error{ErrorCode::kInvalidArgument, "unexpected answer: " + answer};
    return {};
  }

 private:
  RasConnection(Fd fd, std::stop_token stop) : fd_(std::move(fd)), stop_(std::move(stop)) {}

  Result<void> Await(int16_t events, SteadyTime deadline) const {
    while (!stop_.stop_requested()) {
      const auto left = std::chrono::ceil<Milliseconds>(deadline - steady_clock::now());
      if (left <= Milliseconds(0)) return Error{ErrorCode::kDeadlineExceeded, "NCCL does not answer"};
      pollfd entry{.fd = fd_.get(), .events = events, .revents = 0};
      if (::poll(&entry, 1, static_cast<int>(std::min(left, kStopCheck).count())) > 0) return {};
    }
    return Error{ErrorCode::kCancelled, "stopped"};
  }

  // False at the end of the connection.
  Result<bool> ReadSome(SteadyTime deadline) {
    std::array<char, 16'384> bytes{};
    for (;;) {
      const ssize_t read = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
      if (read > 0) unread_.append(bytes.data(), static_cast<std::size_t>(read));
      if (read >= 0) return read > 0;
      if (errno != EAGAIN && errno != EINTR) return SystemError("recv");
      LOCKSTEP_TRY(Await(POLLIN, deadline));
    }
  }

  Fd fd_;
  std::stop_token stop_;
  std::string unread_;
};

Result<RasConnection> Greet(const std::vector<Address>& addresses, SteadyTime deadline,
                            const std::stop_token& stop) {
  Error last{ErrorCode::kUnavailable, "no address"};
  for (const Address& address : addresses) {
    auto connection = RasConnection::Open(address, deadline, stop);
    if (!connection.ok()) {
      last = connection.error();
      continue;
    }
    LOCKSTEP_TRY(connection->Say("CLIENT PROTOCOL 2\n", "SERVER PROTOCOL ", deadline));
    return connection;
  }
  return last;
}

}  // namespace

Result<std::vector<RasCommunicator>> ParseRasAnswer(std::string_view text) {
  LOCKSTEP_TRY(const Json json, ParseJson(text));
  std::vector<RasCommunicator> communicators;
  for (const Json& communicator : ArrayAt(json, "communicators"))
    communicators.push_back(CommunicatorFrom(communicator));
  return communicators;
}

std::string DescribeRas(std::vector<RasCommunicator> communicators, int world) {
  // A round that is over ends its communicators in one rank after the other.
  std::erase_if(communicators, [](const RasCommunicator& communicator) {
    return std::any_of(communicator.ranks.begin(), communicator.ranks.end(),
                       [](const RasRank& rank) { return rank.ends; });
  });
  if (communicators.empty()) return "";
  std::stable_sort(communicators.begin(), communicators.end(),
                   [](const RasCommunicator& a, const RasCommunicator& b) { return a.size > b.size; });
  std::vector<std::string> parts;
  for (const RasCommunicator& communicator : communicators) {
    std::string text = DescribeCommunicator(communicator, world);
    if (!text.empty()) parts.push_back(std::move(text));
  }
  if (parts.empty()) return "all ranks have entered the same collectives";
  if (parts.size() > kMostCommunicators) {
    const std::size_t more = parts.size() - kMostCommunicators;
    parts.resize(kMostCommunicators);
    parts.push_back(std::to_string(more) + " more");
  }
  return Truncate(lockstep::Join(parts, "; "), kLongestText);
}

Result<std::string> AskRas(const std::string& address, Milliseconds limit, const std::stop_token& stop) {
  const SteadyTime deadline = steady_clock::now() + limit;
  LOCKSTEP_TRY(const std::vector<Address> addresses,
               AddressesOf(address.empty() ? kDefaultAddress : address));
  auto connection = Greet(addresses, std::min(deadline, steady_clock::now() + kHandshakeTime), stop);
  while (!connection.ok() && connection.error().code == ErrorCode::kDeadlineExceeded &&
         steady_clock::now() < deadline)
    connection = Greet(addresses, std::min(deadline, steady_clock::now() + kHandshakeTime), stop);
  if (!connection.ok()) return connection.error();
  // Processes that do not answer within a second are missing in the answer.
  LOCKSTEP_TRY(connection->Say("TIMEOUT 1\n", "OK", deadline));
  LOCKSTEP_TRY(connection->Say("SET FORMAT json\n", "OK", deadline));
  LOCKSTEP_TRY(connection->Send("STATUS\n", deadline));
  return connection->ReadRest(deadline);
}

bool HasProcessOf(pid_t ancestor, const std::vector<RasCommunicator>& communicators) {
  return std::any_of(
      communicators.begin(), communicators.end(), [ancestor](const RasCommunicator& communicator) {
        return std::any_of(communicator.ranks.begin(), communicator.ranks.end(),
                           [ancestor](const RasRank& rank) {
                             return rank.pid > 0 && rank.pid <= std::numeric_limits<pid_t>::max() &&
                                    Descends(static_cast<pid_t>(rank.pid), ancestor);
                           });
      });
}

}  // namespace lockstep::launch
