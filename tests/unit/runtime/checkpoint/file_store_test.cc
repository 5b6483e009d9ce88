#include "runtime/checkpoint/file_store.h"
#include "runtime/checkpoint/open_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;

class FileStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::unique_ptr<ObjectStore> Open() const {
    return std::move(OpenObjectStore("file://" + folder_ + "/store")).value();
  }
  [[nodiscard]] static std::vector<std::string> NamesOf(ObjectStore& store) {
    std::vector<std::string> names;
    const auto objects = store.List();
    for (const ObjectInfo& object : objects.value()) names.push_back(object.name);
    return names;
  }

  std::string folder_ = ::testing::TempDir() + "lockstep-file-store-XXXXXX";
};

TEST_F(FileStoreTest, GivesBackWhatWasPut) {
  const auto store = Open();
  const std::string content("a\0b\n", 4);
  ASSERT_TRUE(store->Put("step-1/b", content).ok());
  ASSERT_TRUE(store->Put("step-1/a", "").ok());
  EXPECT_EQ(*store->Get("step-1/b"), content);
  EXPECT_EQ(*store->Get("step-1/a"), "");
  ASSERT_TRUE(store->Put("step-1/b", "newer").ok());
  EXPECT_EQ(*store->Get("step-1/b"), "newer");
  EXPECT_EQ(store->UriOf("step-1/b"), "file://" + folder_ + "/store/step-1/b");
}

TEST_F(FileStoreTest, ListsEveryObjectInOrderOfName) {
  const auto store = Open();
  EXPECT_EQ(NamesOf(*store), std::vector<std::string>{});
  for (const char* name : {"step-2/x", "step-1/y", "step-1/x"}) ASSERT_TRUE(store->Put(name, "123").ok());
  EXPECT_EQ(NamesOf(*store), (std::vector<std::string>{"step-1/x", "step-1/y", "step-2/x"}));
  EXPECT_EQ(store->List()->front().bytes, 3);
}

TEST_F(FileStoreTest, DeletesAFolderWithItsLastObject) {
  const auto store = Open();
  ASSERT_TRUE(store->Put("step-1/x", "1").ok());
  ASSERT_TRUE(store->Put("step-1/y", "1").ok());
  ASSERT_TRUE(store->Delete("step-1/x").ok());
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/store/step-1"));
  ASSERT_TRUE(store->Delete("step-1/y").ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/store/step-1"));
  EXPECT_TRUE(store->Delete("step-1/y").ok()) << "what does not exist is deleted already";
}

TEST_F(FileStoreTest, AbsentIsNotFound) {
  const auto store = Open();
  EXPECT_EQ(store->Get("step-1/x").error().code, ErrorCode::kNotFound);
}

TEST_F(FileStoreTest, LeavesNothingBehindByOpening) {
  EXPECT_EQ(NamesOf(*Open()), std::vector<std::string>{});
}

TEST_F(FileStoreTest, NamesTheFieldWhereTheFolderCannotBe) {
  std::ofstream(folder_ + "/plain") << "a file";
  for (const char* path : {"/plain", "/plain/below"}) {
    const auto store = OpenObjectStore("file://" + folder_ + path);
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.error().code, ErrorCode::kForbidden);
    EXPECT_THAT(store.error().message, HasSubstr("spec.checkpoint.uri"));
  }
}

TEST_F(FileStoreTest, NamesTheFieldWhereTheUriIsAnother) {
  for (const char* uri :
       {"", "/data", "file://", "file://data", "s3://", "gs://", "abfs://", "http://host/x", "S3://b"}) {
    const auto store = OpenObjectStore(uri);
    ASSERT_FALSE(store.ok()) << uri;
    EXPECT_EQ(store.error().code, ErrorCode::kInvalidArgument) << uri;
    EXPECT_THAT(store.error().message, HasSubstr("spec.checkpoint.uri")) << uri;
  }
}

TEST_F(FileStoreTest, ReadsAPartOfAnObject) {
  const auto store = Open();
  ASSERT_TRUE(store->Put("x", "0123456789").ok());
  std::string part(4, ' ');
  ASSERT_TRUE(store->Read("x", 3, part).ok());
  EXPECT_EQ(part, "3456");
  EXPECT_EQ(store->Read("x", 8, part).error().code, ErrorCode::kDataLoss) << "it is not so long";
  EXPECT_EQ(store->Read("y", 0, part).error().code, ErrorCode::kNotFound);
}

TEST_F(FileStoreTest, ReportsWhenAnObjectChanged) {
  const auto store = Open();
  for (const char* name : {"old", "young"}) ASSERT_TRUE(store->Put(name, "x").ok());
  const std::filesystem::path old = folder_ + "/store/old";
  std::filesystem::last_write_time(old, std::filesystem::last_write_time(old) - std::chrono::hours(1));
  const auto objects = store->List();
  ASSERT_TRUE(objects->at(0).changed.has_value());
  const auto apart = *objects->at(1).changed - *objects->at(0).changed;
  EXPECT_GE(apart, std::chrono::minutes(59));
  EXPECT_LT(std::chrono::abs(std::chrono::system_clock::now() - *objects->at(1).changed),
            std::chrono::minutes(10));
}

TEST_F(FileStoreTest, PutsInPieces) {
  const auto store = Open();
  const std::string content(static_cast<std::size_t>(2 * kPacedBytes + 7), 'x');
  std::vector<int64_t> pieces;
  const Pace each = [&](int64_t bytes) {
    pieces.push_back(bytes);
    return Result<void>();
  };
  ASSERT_TRUE(store->PutPaced("step-1/x", content, each).ok());
  EXPECT_EQ(pieces, (std::vector<int64_t>{kPacedBytes, kPacedBytes, 7}));
  EXPECT_EQ(*store->Get("step-1/x"), content);
  const auto ended = store->PutPaced("step-1/y", content, [](int64_t) -> Result<void> {
    return Error{ErrorCode::kAborted, "given up"};
  });
  EXPECT_EQ(ended.error().code, ErrorCode::kAborted);
  EXPECT_EQ(NamesOf(*store), std::vector<std::string>{"step-1/x"});
}

// A job that ends removes the folder of markers while another one writes there.
TEST_F(FileStoreTest, PutsIntoAFolderThatAnotherRemoves) {
  const auto store = Open();
  std::atomic<bool> done = false;
  std::jthread other([&] {
    while (!done) {
      (void)store->Put("owners/a", "1");
      (void)store->Delete("owners/a");
    }
  });
  for (int i = 0; i < 100; ++i) {
    const auto put = store->Put("owners/b", "1");
    EXPECT_TRUE(put.ok()) << put.error().ToString();
    (void)store->Delete("owners/b");
  }
  done = true;
}

TEST_F(FileStoreTest, OpensForACommandWithoutWriting) {
  const auto absent = OpenForCommand("file://" + folder_ + "/absent");
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(absent.error().message, HasSubstr("URI: file://" + folder_ + "/absent: "));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/absent"));
  const auto before = std::filesystem::last_write_time(folder_);
  EXPECT_TRUE(OpenForCommand("file://" + folder_).ok());
  EXPECT_EQ(std::filesystem::last_write_time(folder_), before) << "no probe";
  EXPECT_THAT(OpenForCommand("ftp://x").error().message, HasSubstr("URI: \"ftp://x\" is neither"));
}

// Rank 0 collects garbage while a rank of the next round looks for the newest checkpoint.
TEST_F(FileStoreTest, ListsWhileAnotherDeletes) {
  const auto store = Open();
  std::atomic<bool> done = false;
  std::jthread other([&] {
    for (int i = 0; i < 300; ++i) {
      const std::string name = "step-" + std::to_string(i % 7) + "/x";
      (void)store->Put(name, "1");
      (void)store->Delete(name);
    }
    done = true;
  });
  while (!done) {
    const auto objects = store->List();
    ASSERT_TRUE(objects.ok()) << objects.error().ToString();
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
