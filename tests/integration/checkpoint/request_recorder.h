#pragma once
// An HTTP server of the loopback that accepts every request with an empty 200 and keeps the heads of those
// with a body: what an upload looks like on the wire. One connection per request.

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/common/base/file.h"

namespace lockstep::testing {

class RequestRecorder {
 public:
  RequestRecorder();
  ~RequestRecorder();
  RequestRecorder(const RequestRecorder&) = delete;

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] std::vector<std::string> UploadHeads();  // in lower case

 private:
  void Serve(int connection);

  int port_ = 0;  // before the socket, which sets it
  Fd socket_;
  std::mutex mutex_;
  std::vector<std::string> heads_;  // GUARDED_BY(mutex_)
  std::jthread thread_;             // last: it stops before the rest goes
};

}  // namespace lockstep::testing
