#include "tests/integration/checkpoint/begin_upload.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/common/base/file.h"
#include "tests/support/s3_server.h"

namespace lockstep::testing {

void BeginUpload(const std::string& path) {
  const std::string command =
      "curl -sS --fail --noproxy '*' --max-time 30 --output /dev/null --aws-sigv4 aws:amz:us-east-1:s3 "
      "--user " +
      std::string(S3Server::kKey) + ":" + S3Server::kSecret +
      " -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -X POST '" + EnvOr("AWS_ENDPOINT_URL", "") + "/" + path +
      "?uploads='";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

}  // namespace lockstep::testing
