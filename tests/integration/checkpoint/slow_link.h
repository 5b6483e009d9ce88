#pragma once
// A network between the client of a store and its server that carries so many bytes a second, of all connections
// together: a proxy on the loopback.

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/common/base/file.h"

namespace lockstep::testing {

class SlowLink {
 public:
  // `sent` is called with the number of the bytes that the server gets next. Any thread, one at a time.
  SlowLink(int server_port, int64_t bytes_per_second, std::function<void(int64_t bytes)> sent);
  ~SlowLink();
  SlowLink(const SlowLink&) = delete;

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  struct Connection {
    Fd client;
    Fd server;
    std::jthread upwards;
    std::jthread downwards;
  };

  void Accept(const std::stop_token& stop);
  void Upwards(const Connection& connection);
  static void Downwards(const Connection& connection);

  const int server_port_;
  const int64_t bytes_per_second_;
  const std::function<void(int64_t)> sent_;
  std::mutex link_;  // held while bytes are on their way
  int port_ = 0;     // before the socket, which sets it
  Fd socket_;
  std::list<Connection> connections_;  // of thread_, until that has ended
  std::jthread thread_;
};

}  // namespace lockstep::testing
