// Multipart uploads that were broken off, in a real S3 server: they are listed and aborted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/checkpoint/checkpointer.h"
#include "runtime/storage/s3_uploads.h"
#include "tests/integration/checkpoint/request_recorder.h"
#include "tests/integration/checkpoint/s3_fixture.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::DeafPort;
using lockstep::testing::RequestRecorder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

storage::S3Settings Settings() {
  const auto settings = storage::S3SettingsFromEnvironment({.field = "spec.checkpoint.uri"}, "bucket");
  LOCKSTEP_CHECK(settings.ok());
  return *settings;
}

std::vector<std::string> PathsOfUploads(const std::string& beginning) {
  const auto uploads = storage::ListUploads(Settings(), beginning);
  EXPECT_TRUE(uploads.ok()) << uploads.error().ToString();
  std::vector<std::string> paths;
  for (const storage::UnfinishedUpload& upload : uploads.value()) paths.push_back(upload.path);
  return paths;
}

TEST_F(S3Test, ASaveAbortsUploadsThatWereBrokenOff) {
  ::setenv("http_proxy", "http://127.0.0.1:1", 1);  // not for the loopback
  const std::string place = Uri().substr(5);
  const std::string next = place + "/" + FolderOfStep(3) + "/" + ShardName(0, {"uid-1", 1, 1});
  for (const char* of_another : {"/notes", "-2/step-000000000001/x"}) BeginUpload(place + of_another);
  BeginUpload(next);
  for (int step = 1; step <= 2; ++step)
    BeginUpload(place + "/" + FolderOfStep(step) + "/" + ShardName(0, {"uid-1", 1, 1}));
  const auto checkpointer =
      std::move(Checkpointer::Open({.uri = Uri()}, {"default", "mnist", "uid-1"}, {})).value();
  checkpointer->Save({2, 2, 0, 1, {{"weight", torch::ones({100})}}}, nullptr);
  ASSERT_TRUE(checkpointer->Wait(120s).ok());
  ::unsetenv("http_proxy");
  EXPECT_THAT(PathsOfUploads(place),
              ::testing::UnorderedElementsAre(place + "/notes", next, place + "-2/step-000000000001/x"));
}

TEST_F(S3Test, AbortsAnUploadWhateverItsName) {
  const std::string path = "bucket/uploads/a b&c+d%/\xc3\xa9";
  BeginUpload("bucket/uploads/a%20b%26c%2Bd%25/%C3%A9");
  const auto uploads = storage::ListUploads(Settings(), "bucket/uploads/a b&c+");
  ASSERT_TRUE(uploads.ok()) << uploads.error().ToString();
  ASSERT_EQ(uploads->size(), 1U);
  EXPECT_EQ(uploads->front().path, path);
  for (const char* time : {"first", "second"})
    EXPECT_TRUE(storage::AbortUpload(Settings(), uploads->front()).ok()) << time;
  EXPECT_THAT(PathsOfUploads(path), IsEmpty());
}

TEST_F(S3Test, KeepsTheObjectWhoseUploadIsAborted) {
  const auto store = OpenStore();
  ASSERT_TRUE(store->Put("step-1/x", "content").ok());
  BeginUpload(Uri().substr(5) + "/step-1/x");
  const auto aborted = store->AbortUploads([](const std::string& name) { return name == "step-1/x"; });
  ASSERT_TRUE(aborted.ok()) << aborted.error().ToString();
  EXPECT_EQ(*aborted, 1);
  EXPECT_EQ(*store->Get("step-1/x"), "content");
}

TEST_F(S3Test, SaysWhyUploadsAreNotAborted) {
  storage::S3Settings settings = Settings();
  const auto error = [&] { return storage::ListUploads(settings, "bucket/").error(); };
  settings.secret_key = "another-secret";
  EXPECT_EQ(error().code, ErrorCode::kForbidden);
  EXPECT_THAT(error().message, HasSubstr("403 SignatureDoesNotMatch"));
  EXPECT_THAT(error().message, HasSubstr("s3:AbortMultipartUpload"));
  const DeafPort nobody(/*held=*/false);
  settings = Settings();
  settings.endpoint = nobody.url().substr(7);
  EXPECT_EQ(error().code, ErrorCode::kUnavailable);
  const RequestRecorder another;  // it answers everything with an empty 200
  settings.endpoint = another.url().substr(7);
  EXPECT_EQ(error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace lockstep::checkpoint
