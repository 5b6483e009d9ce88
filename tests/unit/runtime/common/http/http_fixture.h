#pragma once
// A server and a client of it over loopback.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/http/server.h"

namespace lockstep::http {

class HttpTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { InitializeHttpThreads(2); }

  std::unique_ptr<HttpTransport> Serve(Handler handler, const ConnectionLimits& limits = {}) {
    auto server = StartServer({.limits = limits}, std::move(handler));
    EXPECT_TRUE(server.ok());
    server_ = std::move(server).value();
    auto transport =
        MakeTransport({.url = "http://127.0.0.1:" + std::to_string(server_->port()), .token = "secret"});
    EXPECT_TRUE(transport.ok());
    return std::move(transport).value();
  }

  std::unique_ptr<HttpServer> server_;
};

}  // namespace lockstep::http
