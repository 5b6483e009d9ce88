#include "tests/bench/rendezvous/members.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/fields.h"
#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::bench {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Tcp = asio::ip::tcp;
using protocol::JoinState;

// More at once would overflow the queue of the listening socket, and measure TCP's repetitions.
constexpr int kConnectsAtOnce = 256;
constexpr std::chrono::milliseconds kBeatInterval{2'000};
// A supervisor has a connection for its long poll and one for its heartbeats; here a few members share the
// second, as a process may not have 20,000 connections everywhere.
constexpr int kMembersPerBeatConnection = 2;

// One HTTPS connection; requests wait for the answer to the one before.
class Connection {
 public:
  using Handler = std::function<void(int status, const std::string& body)>;

  Connection(asio::io_context& io, asio::ssl::context& tls, Scoreboard& board)
      : stream_(io, tls), board_(board) {}

  void Open(std::function<void()> done) {
    stream_.set_verify_callback(asio::ssl::host_name_verification("localhost"));
    const Tcp::endpoint server(asio::ip::address_v4::loopback(),
                               static_cast<unsigned short>(board_.port.load()));
    beast::get_lowest_layer(stream_).async_connect(server, [this, done = std::move(done)](auto error) {
      if (error) return Fail();
      beast::get_lowest_layer(stream_).socket().set_option(Tcp::no_delay(true));
      stream_.async_handshake(asio::ssl::stream_base::client, [this, done](auto failed) {
        if (failed) return Fail();
        is_open_ = true;
        ++board_.connected;
        done();
      });
    });
  }

  template <typename Message>
  void Post(std::string_view path, const Message& message, Handler handler) {
    Request request(beast::http::verb::post, {path.data(), path.size()}, 11);
    request.set(beast::http::field::host, "localhost");
    request.set(beast::http::field::authorization, "Bearer bench");
    request.set(beast::http::field::content_type, "application/json");
    request.body() = DumpJson(MessageToJson(message));
    request.prepare_payload();
    queue_.push_back({std::move(request), std::move(handler)});
    if (queue_.size() == 1) Send();
  }

  [[nodiscard]] bool is_open() const { return is_open_; }

 private:
  using Request = beast::http::request<beast::http::string_body>;

  void Send() {
    beast::http::async_write(stream_, queue_.front().first, [this](auto error, std::size_t) {
      if (error) return Fail();
      response_ = {};
      beast::http::async_read(stream_, buffer_, response_, [this](auto failed, std::size_t) {
        if (failed) return Fail();
        const Handler handler = std::move(queue_.front().second);
        queue_.pop_front();
        if (!queue_.empty()) Send();
        const std::string body = std::move(response_.body());
        handler(response_.result_int(), body);
      });
    });
  }

  void Fail() { ++board_.failures; }

  beast::ssl_stream<beast::tcp_stream> stream_;
  Scoreboard& board_;
  beast::flat_buffer buffer_;
  beast::http::response<beast::http::string_body> response_;
  std::deque<std::pair<Request, Handler>> queue_;
  bool is_open_ = false;
};

class Member {
 public:
  Member(int slot, const Plan& plan, Scoreboard& board, Connection& poll, Connection& beats)
      : dies_(plan.Dies(slot)), board_(board), poll_(poll), beats_(beats) {
    const std::string pod = "bench-worker-" + std::to_string(slot);
    join_ = {.job = {"bench", "bench", "bench-uid"},
             .member = {.pod = pod, .pod_uid = pod + "-uid", .slot = slot, .incarnation = "1"},
             .address = "10.0.0.1",
             .store_port = 29500};
  }

  void Join() {
    joined_ = true;
    poll_.Post(protocol::kJoinPath, join_, [this](int status, const std::string& body) {
      const auto answer = Parse<protocol::JoinAnswer>(status, body);
      if (!answer.has_value()) return;
      if (answer->state == JoinState::kWaiting) return Join();
      if (answer->state != JoinState::kAssigned) return Fail();
      in_round_ = true;
      join_.last_round = answer->round;
      join_.step = 100 * answer->round;
      first_rank_ = answer->first_rank;
      world_ = answer->world;
      (answer->round == 1 ? board_.placed : board_.placed_again).Add();
      Watch();
    });
  }

  void Beat() {
    if (!joined_ || beating_ || !beats_.is_open()) return;
    beating_ = true;
    const protocol::Heartbeat beat{.job = join_.job,
                                   .member = join_.member,
                                   .round = in_round_ ? join_.last_round : 0,
                                   .world = world_,
                                   .first_rank = first_rank_,
                                   .ranks = {{.rank = first_rank_, .step = ++join_.step}},
                                   .progress = {.round = join_.last_round, .step = join_.step, .loss = 0.5}};
    beats_.Post(protocol::kHeartbeatPath, beat, [this](int status, const std::string&) {
      beating_ = false;
      if (status == 200) {
        ++board_.beats;
        if (!std::exchange(present_, true)) ++board_.present;
      } else if (!dies_) {
        Fail();
      }
    });
  }

 private:
  void Watch() {
    const protocol::WatchRequest watch{join_.job, join_.member, join_.last_round};
    poll_.Post(protocol::kWatchPath, watch, [this](int status, const std::string& body) {
      if (dies_) return;  // its place is taken note of; nobody reads this answer
      const auto answer = Parse<protocol::WatchAnswer>(status, body);
      if (!answer.has_value()) return;
      if (!answer->over) return Watch();
      board_.notified.Add();
      in_round_ = false;
      Join();
    });
  }

  template <typename Message>
  std::optional<Message> Parse(int status, const std::string& body) {
    const auto json = ParseJson(body);
    if (status == 200 && json.ok()) {
      auto message = MessageFromJson<Message>(*json);
      if (message.ok()) return std::move(message).value();
    }
    Fail();
    return std::nullopt;
  }
  void Fail() { ++board_.failures; }

  const bool dies_;
  Scoreboard& board_;
  Connection& poll_;
  Connection& beats_;
  protocol::JoinRequest join_;
  int first_rank_ = 0;
  int world_ = 0;
  bool in_round_ = false;
  bool joined_ = false;   // has asked for a place
  bool present_ = false;  // the service has answered a heartbeat
  bool beating_ = false;  // the answer to the newest heartbeat is outstanding
};

class Crowd {
 public:
  Crowd(const Plan& plan, Scoreboard& board)
      : plan_(plan), board_(board), tls_(asio::ssl::context::tls_client) {
    tls_.add_certificate_authority(asio::buffer(std::string(board.ca.data())));
    tls_.set_verify_mode(asio::ssl::verify_peer);
    for (int slot = 0; slot < plan.members; ++slot) {
      if (slot % kMembersPerBeatConnection == 0) beats_ = &AddConnection([] {});
      const auto index = static_cast<std::size_t>(slot);
      Connection& poll = AddConnection([this, index] {
        if (index + 1 < members_.size()) members_[index]->Join();
      });
      members_.push_back(std::make_unique<Member>(slot, plan, board, poll, *beats_));
    }
  }

  void Run() {
    for (int i = 0; i < kConnectsAtOnce; ++i) OpenNext();
    Tick();
    io_.run();
  }

 private:
  Connection& AddConnection(std::function<void()> opened) {
    connections_.emplace_back(std::make_unique<Connection>(io_, tls_, board_), std::move(opened));
    return *connections_.back().first;
  }

  void OpenNext() {
    if (opened_ == connections_.size()) return;
    auto& next = connections_[opened_++];
    next.first->Open([this, &next] {
      next.second();
      OpenNext();
    });
  }

  // Beats are spread over the interval, as those of pods are.
  void Tick() {
    if (board_.over) return io_.stop();
    if (board_.last_may_join && board_.last_join_ns == 0) {
      board_.last_join_ns = NowNs();
      members_.back()->Join();
    }
    const auto count = static_cast<std::size_t>(plan_.members);
    const std::size_t due = count * static_cast<std::size_t>((NowNs() - started_ns_) / 1'000'000) /
                            static_cast<std::size_t>(kBeatInterval.count());
    for (; beaten_ < due; ++beaten_) {
      const int slot = static_cast<int>(beaten_ % count);
      if (board_.notified.count > 0 && plan_.Dies(slot)) continue;
      members_[static_cast<std::size_t>(slot)]->Beat();
    }
    timer_.expires_after(std::chrono::milliseconds(5));
    timer_.async_wait([this](auto) { Tick(); });
  }

  const Plan& plan_;
  Scoreboard& board_;
  asio::io_context io_;
  asio::ssl::context tls_;
  asio::steady_timer timer_{io_};
  std::vector<std::pair<std::unique_ptr<Connection>, std::function<void()>>> connections_;  // and what then
  Connection* beats_ = nullptr;  // the newest for heartbeats
  std::vector<std::unique_ptr<Member>> members_;
  std::size_t opened_ = 0;
  std::size_t beaten_ = 0;
  const int64_t started_ns_ = NowNs();
};

}  // namespace

int ConnectionsOf(int members) {
  return members + (members + kMembersPerBeatConnection - 1) / kMembersPerBeatConnection;
}

void RunMembers(const Plan& plan, Scoreboard& board) { Crowd(plan, board).Run(); }

}  // namespace lockstep::bench
