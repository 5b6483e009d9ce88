// What the preset gpu-core leaves out is refused, and the message says what would be right.

#include <gtest/gtest.h>

#include "runtime/checkpoint/open_store.h"
#include "runtime/data/remote_objects.h"

namespace lockstep {
namespace {

TEST(LeftOut, StoresOfCheckpointsAreRefused) {
  for (const std::string uri : {"s3://bucket/job", "gs://bucket/job", "abfs://container/job"}) {
    const auto refused = checkpoint::OpenObjectStore(uri);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(refused.error().message,
              "spec.checkpoint.uri: \"" + uri + "\": this build has no object stores; use file:///folder");
  }
}

TEST(LeftOut, StoresOfDataAreRefused) {
  api::DataSpec spec;
  spec.path = "s3://bucket/data";
  const auto refused = data::OpenRemoteObjects(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "spec.training.data.path: \"s3://bucket/data\": this build has no object stores; use a folder");
}

}  // namespace
}  // namespace lockstep
