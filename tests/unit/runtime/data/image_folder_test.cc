#include "runtime/data/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <optional>

#include "runtime/common/base/error_exception.h"
#include "runtime/common/base/file.h"
#include "tests/unit/runtime/data/png_bytes.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

// 2 by 2 pixels, all alike.
std::string Plain(char grey) {
  return PngBytes({.width = 2, .height = 2, .colour = PngColour::kGrey}, std::string(4, grey));
}

class ImageFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    Write("train/dog/b.png", Plain('\x33'));
    Write("train/dog/a.PNG",
          PngBytes({.width = 2, .height = 2}, "\x00\x33\x66\x99\xcc\xff\x00\x00\x00\xff\xff\xff"s));
    Write("train/cat/really-a-png.jpeg", Plain('\x66'));
    Write("train/dog/.thumbnails", "no image");
    Write("test/dog/1.png", Plain('\x00'));
    Write("test/cat/1.png", Plain('\xff'));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
    ASSERT_TRUE(WriteFile(folder_ + "/" + name, content).ok());
  }
  void Remove(const std::string& name) const { std::filesystem::remove_all(folder_ + "/" + name); }
  [[nodiscard]] Datasets Open(int64_t size = 2) const {
    auto sets = OpenImageFolder(folder_, {.image_size = size});
    EXPECT_TRUE(sets.ok()) << sets.error().message;
    return std::move(sets).value();
  }
  void ExpectRefused(const std::string& part) const {
    const auto sets = OpenImageFolder(folder_, {});
    ASSERT_FALSE(sets.ok());
    EXPECT_EQ(sets.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(sets.error().message, HasSubstr("spec.training.data.path: " + folder_));
    EXPECT_THAT(sets.error().message, HasSubstr(part));
  }

  std::string folder_ = ::testing::TempDir() + "lockstep-images-XXXXXX";
};

std::optional<Error> ErrorOf(const Dataset& dataset, int64_t id) {
  try {
    (void)dataset.Get(std::vector<int64_t>{id});
    return std::nullopt;
  } catch (const ErrorException& thrown) {
    return thrown.error();
  }
}

TEST_F(ImageFolderTest, NumbersClassesAndFilesByTheirNames) {
  const Datasets sets = Open();
  EXPECT_EQ(sets.train->size(), 3);
  EXPECT_EQ(sets.test->size(), 2);
  EXPECT_EQ(sets.train->classes(), 2);
  EXPECT_EQ(sets.train->sample_shape(), (std::vector<int64_t>{3, 2, 2}));
  EXPECT_TRUE(at::equal(sets.train->labels(), torch::tensor({0, 1, 1}, at::kLong)));
  const Batch batch = sets.train->Get(std::vector<int64_t>{2, 0});
  EXPECT_TRUE(at::equal(batch.targets, torch::tensor({1, 0}, at::kLong)));
  EXPECT_TRUE(at::allclose(batch.inputs[0], at::full({3, 2, 2}, 0.2)));
  EXPECT_TRUE(at::allclose(batch.inputs[1], at::full({3, 2, 2}, 0.4)));
}

TEST_F(ImageFolderTest, KeepsColoursAndPlacesApart) {
  const Batch batch = Open().train->Get(std::vector<int64_t>{1});
  const at::Tensor expected = torch::tensor({{{0.0, 0.6}, {0.0, 1.0}},   // red
                                             {{0.2, 0.8}, {0.0, 1.0}},   // green
                                             {{0.4, 1.0}, {0.0, 1.0}}},  // blue
                                            at::kFloat);
  EXPECT_TRUE(at::allclose(batch.inputs[0], expected)) << batch.inputs;
}

// Every second pixel of fine stripes would be all black or all white.
TEST_F(ImageFolderTest, ScalesByMeans) {
  std::string stripes;
  for (int i = 0; i < 64 * 48; ++i) stripes += i % 2 == 0 ? '\0' : '\xff';
  Write("train/cat/really-a-png.jpeg",
        PngBytes({.width = 64, .height = 48, .colour = PngColour::kGrey}, stripes));
  const Batch batch = Open(8).train->Get(std::vector<int64_t>{0, 2});
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{2, 3, 8, 8}));
  EXPECT_TRUE(at::allclose(batch.inputs[0], at::full({3, 8, 8}, 0.5), 0, 0.02)) << batch.inputs[0][0];
  EXPECT_TRUE(at::allclose(batch.inputs[1], at::full({3, 8, 8}, 0.2))) << batch.inputs[1][0];
}

TEST_F(ImageFolderTest, NamesTheFileThatABatchCannotHave) {
  const Datasets sets = Open();
  const std::string path = folder_ + "/train/dog/b.png";
  Write("train/dog/b.png", Plain('\x33').substr(0, 45));
  auto error = ErrorOf(*sets.train, 2);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kDataLoss);
  EXPECT_THAT(error->message, HasSubstr("spec.training.data.path: " + path + " is damaged: "));
  EXPECT_FALSE(ErrorOf(*sets.train, 1).has_value());
  Write("train/dog/b.png", "");
  EXPECT_THAT(ErrorOf(*sets.train, 2)->message, HasSubstr("b.png is neither a JPEG nor a PNG image"));
  std::filesystem::resize_file(path, (1 << 28) + 1);  // uses no disk space
  EXPECT_THAT(ErrorOf(*sets.train, 2)->message, HasSubstr("b.png has 268435457 bytes"));
  Remove("train/dog/b.png");
  error = ErrorOf(*sets.train, 2);
  EXPECT_EQ(error->code, ErrorCode::kInternal);  // retried on a file system that is temporarily unavailable
  EXPECT_THAT(error->message, HasSubstr("spec.training.data.path: reading " + path));
  std::filesystem::create_directory(path);
  EXPECT_EQ(ErrorOf(*sets.train, 2)->code, ErrorCode::kInternal);
}

// Each at its position; an unreadable file does not show that its content is corrupt.
TEST_F(ImageFolderTest, ReportsWhichImagesAreCorruptWhereTheyAreSkipped) {
  const Datasets sets = OpenImageFolder(folder_, {.image_size = 2}, api::OnCorruptRecord::kSkip).value();
  Write("train/dog/b.png", Plain('\x33').substr(0, 45));
  ::testing::internal::CaptureStderr();
  const Batch batch = sets.train->Get(std::vector<int64_t>{0, 2, 1, 2});
  (void)sets.train->Get(std::vector<int64_t>{2});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(batch.corrupt, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(batch.inputs.size(0), 4);
  const Batch good = batch.WithoutCorrupt();
  EXPECT_EQ(good.left_out, 2);
  EXPECT_TRUE(good.corrupt.empty());
  EXPECT_TRUE(at::equal(good.targets, torch::tensor({0, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(good.inputs, sets.train->Get(std::vector<int64_t>{0, 1}).inputs));
  const std::string path = folder_ + "/train/dog/b.png";
  EXPECT_THAT(log, HasSubstr("\"record\":\"" + path + "\",\"problem\":\"is damaged: "));
  EXPECT_EQ(log.find(path), log.rfind(path)) << "named once: " << log;
  Remove("train/dog/b.png");
  EXPECT_EQ(ErrorOf(*sets.train, 2)->code, ErrorCode::kInternal);
}

TEST_F(ImageFolderTest, RefusesFoldersOfAnotherKind) {
  Write("train/dog/notes.txt", "");
  ExpectRefused("/train/dog/notes.txt is no image file; format imageFolder needs");
  Remove("train/dog/notes.txt");
  std::filesystem::create_directory(folder_ + "/train/dog/more.png");
  ExpectRefused("/train/dog/more.png is no image file");
  Remove("train/dog/more.png");
  Write("test/list.png", Plain('\0'));
  ExpectRefused("/test/list.png is no folder of a class");
  Remove("test/list.png");
  Remove("test/cat");
  ExpectRefused("only one of train and test has the class cat");
  std::filesystem::create_directory(folder_ + "/test/cat");
  ExpectRefused("/test/cat holds no image file");
  Remove("train");
  ExpectRefused("/train cannot be read (No such file or directory)");
  std::filesystem::create_directory(folder_ + "/train");
  ExpectRefused("/train holds no folder of a class");
}

}  // namespace
}  // namespace lockstep::data
