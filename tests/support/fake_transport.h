#pragma once
// An HttpTransport whose answers the test writes; it keeps what it was asked.

#include <functional>
#include <string>
#include <vector>

#include "runtime/common/http/transport.h"

namespace lockstep::testing {

class FakeTransport final : public http::HttpTransport {
 public:
  using Answer = std::function<Result<http::Response>(const http::Request&)>;

  Result<http::Response> Send(const http::Request& request, std::stop_token) override {
    requests.push_back(request);
    return answer(request);
  }
  // Delivers `chunks`, then ends with `answer`.
  Result<http::Response> Stream(const http::Request& request, const http::ChunkHandler& on_chunk,
                                std::stop_token) override {
    requests.push_back(request);
    for (const std::string& chunk : chunks) {
      if (!on_chunk(chunk)) break;
    }
    return answer(request);
  }

  Answer answer = [](const http::Request&) { return http::Response{.status = 200, .body = "{}"}; };
  std::vector<std::string> chunks;
  std::vector<http::Request> requests;
};

}  // namespace lockstep::testing
