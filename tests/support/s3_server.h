#pragma once
// What the tests of object storage talk to, on ports of the loopback.

#include <optional>
#include <string>

#include "tests/support/forked_process.h"

namespace lockstep::testing {

// A socket of the loopback with a port from the system; not yet listening.
[[nodiscard]] Fd BindLoopback(int& port);

// A versitygw of this test over a folder of its own. One thread.
class S3Server {
 public:
  static constexpr const char* kKey = "lockstep";
  static constexpr const char* kSecret = "a-secret-of-the-test";

  // The program as tests/cluster/programs/build.sh places it; empty where it is not built.
  [[nodiscard]] static std::string Program();

  S3Server();
  ~S3Server();  // with everything it stored
  S3Server(const S3Server&) = delete;

  void Stop();   // ends it at once, as a crash does
  void Start();  // again, at the same address; returns when it answers
  void MakeBucket(const std::string& name) const;
  // Where the server keeps the objects, as "bucket/object".
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  [[nodiscard]] bool StartAt(int port);

  std::string folder_;
  int port_ = 0;
  std::optional<ForkedProcess> process_;
};

// A port of the loopback. Held: it takes connections and never answers; else nobody listens on it.
class DeafPort {
 public:
  explicit DeafPort(bool held);
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  int port_ = 0;  // before the socket, which sets it
  Fd socket_;
};

}  // namespace lockstep::testing
