// Training data in a real S3 server: the copy holds the same bytes, and what is wrong is named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/data/local_copy.h"
#include "runtime/storage/s3_client.h"
#include "tests/support/s3_server.h"

namespace lockstep::data {
namespace {

using lockstep::testing::DeafPort;
using lockstep::testing::S3Server;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

void SetCredentials(const std::string& prefix, const std::string& key, const std::string& secret,
                    const std::string& endpoint) {
  ::setenv((prefix + "AWS_ACCESS_KEY_ID").c_str(), key.c_str(), 1);
  ::setenv((prefix + "AWS_SECRET_ACCESS_KEY").c_str(), secret.c_str(), 1);
  ::setenv((prefix + "AWS_ENDPOINT_URL").c_str(), endpoint.c_str(), 1);
  ::unsetenv((prefix + "AWS_REGION").c_str());
}

std::string Content(std::size_t bytes, unsigned int seed) {
  std::string content(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(seed + i * 31 + i / 4093);
  return content;
}

// Says when something was read.
class WatchedObjects final : public RemoteObjects {
 public:
  WatchedObjects(std::unique_ptr<RemoteObjects> objects, std::function<void()> was_read)
      : objects_(std::move(objects)), was_read_(std::move(was_read)) {}
  Result<RemoteObject> Find(const std::string& name) override { return objects_->Find(name); }
  Result<std::vector<RemoteObject>> List() override { return objects_->List(); }
  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    LOCKSTEP_TRY(objects_->Read(name, offset, target));
    was_read_();
    return {};
  }

 private:
  const std::unique_ptr<RemoteObjects> objects_;
  const std::function<void()> was_read_;
};

class S3DataTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (S3Server::Program().empty()) return;
    server_ = std::make_unique<S3Server>();
    server_->MakeBucket("bucket");
  }
  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override {
    if (server_ == nullptr) GTEST_SKIP() << "no versitygw here: tests/cluster/install.sh builds it";
    // See LeaveOutTrailingChecksums in remote_store.cc.
    ::setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required", 1);
    SetCredentials("", S3Server::kKey, S3Server::kSecret, server_->url());
    ASSERT_NE(::mkdtemp(cache_.data()), nullptr);
    spec_.format = api::DataFormat::kTokens;
    spec_.path =
        "s3://bucket/" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name());
    spec_.cache = cache_;
  }
  void TearDown() override { fs::remove_all(cache_); }

  void Put(const std::string& name, const std::string& content) {
    if (!writer_) {
      const storage::S3Settings settings{.access_key = S3Server::kKey,
                                         .secret_key = S3Server::kSecret,
                                         .region = storage::kDefaultRegion,
                                         .scheme = "http",
                                         .endpoint = server_->url().substr(7)};
      writer_.emplace(std::move(storage::MakeS3Client(settings, {.silence_seconds = 10})).value());
    }
    const auto put = writer_->Put(spec_.path.substr(5) + "/" + name, content);
    LOCKSTEP_CHECK(put.ok(), put.ok() ? "" : put.error().ToString());
  }
  // With all that is in it.
  Result<std::unique_ptr<LocalCopy>> Make() {
    LOCKSTEP_TRY(auto objects, OpenRemoteObjects(spec_));
    auto source = std::make_unique<WatchedObjects>(std::move(objects), was_read_);
    LOCKSTEP_TRY(std::unique_ptr<LocalCopy> copy, LocalCopy::Open(spec_, std::move(source), options_));
    std::vector<Stretch> all;
    for (const RemoteObject& object : copy->objects()) all.push_back({.object = object.name});
    LOCKSTEP_TRY(copy->WaitFor(all));
    return copy;
  }
  Error ErrorOf() {
    const auto copy = Make();
    LOCKSTEP_CHECK(!copy.ok(), "no error");
    return copy.error();
  }

  inline static std::unique_ptr<S3Server> server_;
  std::string cache_ = ::testing::TempDir() + "s3-data-XXXXXX";
  api::DataSpec spec_;
  CopyOptions options_;
  std::function<void()> was_read_ = [] {};
  std::optional<storage::StoreClient> writer_;
};

TEST_F(S3DataTest, CopiesLargeObjectsInParts) {
  Put("train.bin", Content(40 * kMegabyte + 5, 1));
  Put("val.bin", Content(100, 2));
  std::atomic<int64_t> waits = 0;
  options_.fetch.retries.pause = [&](Milliseconds) { ++waits; };
  const auto copy = Make();
  ASSERT_TRUE(copy.ok()) << copy.error().ToString();
  EXPECT_TRUE(*ReadFile((*copy)->folder() + "/train.bin") == Content(40 * kMegabyte + 5, 1));
  EXPECT_TRUE(*ReadFile((*copy)->folder() + "/val.bin") == Content(100, 2));
  EXPECT_EQ(waits, 0) << "no request failed";
}

TEST_F(S3DataTest, CopiesManySmallObjects) {
  spec_.format = api::DataFormat::kImageFolder;
  for (unsigned int i = 0; i < 200; ++i)
    Put("train/class-" + std::to_string(i % 3) + "/" + std::to_string(i) + ".jpg", Content(i, i));
  Put("test/class-0/ä b+c.jpg", "name");
  const auto copy = Make();
  ASSERT_TRUE(copy.ok()) << copy.error().ToString();
  for (unsigned int i = 0; i < 200; ++i) {
    const std::string name = "/train/class-" + std::to_string(i % 3) + "/" + std::to_string(i) + ".jpg";
    EXPECT_TRUE(*ReadFile((*copy)->folder() + name) == Content(i, i)) << name;
  }
  EXPECT_EQ(*ReadFile((*copy)->folder() + "/test/class-0/ä b+c.jpg"), "name");
}

TEST_F(S3DataTest, ReadsTheVariablesOfASecretOfItsOwn) {
  Put("train.txt", "text");
  Put("val.txt", "text");
  SetCredentials("", "of-the-checkpoints", "secret", "http://127.0.0.1:9");
  SetCredentials(api::kDataVariablePrefix, S3Server::kKey, S3Server::kSecret, server_->url());
  spec_.secret_ref = api::SecretReference{"data"};
  const auto copy = Make();
  EXPECT_TRUE(copy.ok()) << copy.error().ToString();
}

TEST_F(S3DataTest, TakesAnotherCopyOfAnObjectThatWasReplaced) {
  Put("train.txt", "first");
  Put("val.txt", "text");
  const std::string first = (*Make())->folder();
  Put("train.txt", "later");  // of the same size
  const auto later = Make();
  ASSERT_TRUE(later.ok());
  EXPECT_NE((*later)->folder(), first);
  EXPECT_EQ(*ReadFile((*later)->folder() + "/train.txt"), "later");
}

TEST_F(S3DataTest, RefusesAnObjectThatIsReplacedMeanwhile) {
  Put("train.bin", Content(40 * kMegabyte, 1));
  Put("val.bin", Content(100, 2));
  std::atomic<bool> replaced = false;
  options_.fetch.threads = 1;
  was_read_ = [&] {
    if (!replaced.exchange(true)) Put("train.bin", Content(40 * kMegabyte, 7));
  };
  const Error error = ErrorOf();
  EXPECT_EQ(error.code, ErrorCode::kConflict);
  EXPECT_THAT(error.message, HasSubstr(spec_.path + "/train.bin has changed while it was fetched"));
}

TEST_F(S3DataTest, NamesAnObjectThatDoesNotExist) {
  Put("train.txt", "text");
  EXPECT_THAT(ErrorOf().message,
              HasSubstr("spec.training.data.path: " + spec_.path + " has no val.bin or val.txt"));
  spec_.path = "s3://absent/folder";
  EXPECT_THAT(ErrorOf().message, HasSubstr("s3://absent/folder has no train.bin or train.txt"));
  spec_.format = api::DataFormat::kImageFolder;
  EXPECT_THAT(ErrorOf().message, HasSubstr("s3://absent/folder"));
}

TEST_F(S3DataTest, NamesTheSecretWhereItIsWrong) {
  Put("train.txt", "text");
  SetCredentials("", S3Server::kKey, "another-secret", server_->url());
  const Error error = ErrorOf();
  EXPECT_EQ(error.code, ErrorCode::kForbidden);
  EXPECT_THAT(error.message, HasSubstr("spec.training.data.path: s3://bucket/"));
  EXPECT_THAT(error.message, HasSubstr("Secret named by spec.training.data.secretRef"));
  SetCredentials("", "", "", server_->url());
  EXPECT_THAT(ErrorOf().message,
              HasSubstr("spec.training.data.secretRef or spec.checkpoint.secretRef: s3://bucket/"));
}

TEST_F(S3DataTest, NamesTheRegionWhereItIsWrong) {
  Put("train.txt", "text");
  ::setenv("AWS_REGION", "eu-west-1", 1);
  const Error error = ErrorOf();
  ::unsetenv("AWS_REGION");
  EXPECT_THAT(error.message, HasSubstr("spec.training.data"));
  EXPECT_THAT(error.message, HasSubstr("AWS_REGION"));
}

TEST_F(S3DataTest, GivesUpAStoreThatNeverAnswers) {
  const DeafPort port(/*held=*/false);
  SetCredentials("", S3Server::kKey, S3Server::kSecret, port.url());
  int pauses = 0;
  options_.fetch.retries.pause = [&](Milliseconds) { ++pauses; };
  const Error error = ErrorOf();
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message,
              HasSubstr("AWS_ENDPOINT_URL in the Secret named by spec.training.data.secretRef"));
  EXPECT_EQ(pauses, 5);
}

}  // namespace
}  // namespace lockstep::data
