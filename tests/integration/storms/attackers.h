#pragma once
// What one address does that wants to disturb a rendezvous: more connections than it may have, and bad tokens.

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "runtime/common/base/file.h"

namespace lockstep::testing {

// Keeps `count` connections open that say nothing. Those that the server closes it opens again.
class ConnectionFlood {
 public:
  ConnectionFlood(std::string address, int port, std::size_t count);
  [[nodiscard]] std::size_t opened() const { return opened_; }
  // By the server.
  [[nodiscard]] std::size_t closed() const { return closed_; }

 private:
  void Run(const std::stop_token& stop, std::size_t count);
  [[nodiscard]] Fd Open() const;

  const std::string address_;
  const int port_;
  std::atomic<std::size_t> opened_ = 0;
  std::atomic<std::size_t> closed_ = 0;
  std::jthread thread_;
};

// Sends heartbeats over TLS, `per_second` of them, each with a token that was never seen before.
class TokenFlood {
 public:
  TokenFlood(std::string address, int port, int per_second);
  // Requests that the server answered with this status.
  [[nodiscard]] std::size_t unauthorized() const { return unauthorized_; }
  [[nodiscard]] std::size_t unavailable() const { return unavailable_; }
  [[nodiscard]] std::size_t others() const { return others_; }

 private:
  void Run(const std::stop_token& stop, int number, int per_second);
  // Until the connection ends.
  void SendOverOneConnection(const std::stop_token& stop, int number, int per_second);

  const std::string address_;
  const int port_;
  std::atomic<std::size_t> unauthorized_ = 0;
  std::atomic<std::size_t> unavailable_ = 0;
  std::atomic<std::size_t> others_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::testing
