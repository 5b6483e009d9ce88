#pragma once
// What the tests of checkpoints in a real S3 server share.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "runtime/checkpoint/object_store.h"
#include "tests/support/s3_server.h"

namespace lockstep::checkpoint {

// Removes all variables of AWS, and excludes the keys of the user who runs the test.
void ForgetCredentials();
void SetCredentials(const std::string& key, const std::string& secret, const std::string& endpoint);

// Begins a multipart upload that nobody completes, as a process that is killed does, in the server that
// AWS_ENDPOINT_URL names. `path` is percent-encoded.
void BeginUpload(const std::string& path);

// Each test begins with the credentials of a server that the tests of one fixture share.
class S3Test : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override;

  // A prefix that no other test uses.
  static std::string Uri();
  static std::unique_ptr<ObjectStore> OpenStore();

  inline static std::unique_ptr<testing::S3Server> server_;
};

}  // namespace lockstep::checkpoint
