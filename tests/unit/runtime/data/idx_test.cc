#include "runtime/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <zlib.h>

#include <filesystem>
#include <functional>

#include "runtime/common/base/file.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

std::string Word(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>((value >> shift) & 0xFFU);
  return bytes;
}

std::string Images(uint32_t count, uint32_t height, uint32_t width) {
  std::string file = Word(0x803) + Word(count) + Word(height) + Word(width);
  for (uint32_t i = 0; i < count * height * width; ++i) file += static_cast<char>(i % 251);
  return file;
}
std::string Labels(uint32_t count, uint32_t classes) {
  std::string file = Word(0x801) + Word(count);
  for (uint32_t i = 0; i < count; ++i) file += static_cast<char>(i % classes);
  return file;
}

std::string Gzip(const std::string& content, const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "wb");
  EXPECT_EQ(gzwrite(file, content.data(), static_cast<unsigned int>(content.size())),
            static_cast<int>(content.size()));
  gzclose(file);
  return *ReadFile(path);
}

class Idx : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    Write("train-images-idx3-ubyte", Images(6, 4, 5));
    Write("train-labels-idx1-ubyte", Labels(6, 3));
    Write("t10k-images-idx3-ubyte", Images(2, 4, 5));
    Write("t10k-labels-idx1-ubyte", Labels(2, 3));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& content) const {
    ASSERT_TRUE(WriteFile(folder_ + "/" + name, content).ok());
  }
  void Remove(const std::string& name) const { std::filesystem::remove(folder_ + "/" + name); }
  void ExpectRefused(const std::string& part) const {
    const auto sets = OpenIdx(folder_);
    ASSERT_FALSE(sets.ok());
    EXPECT_EQ(sets.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(sets.error().message, HasSubstr("spec.training.data.path"));
    EXPECT_THAT(sets.error().message, HasSubstr(part));
  }

  std::string folder_ = ::testing::TempDir() + "lockstep-idx-XXXXXX";
};

TEST_F(Idx, ReadsImagesAndLabelsByNumber) {
  const auto sets = OpenIdx(folder_);
  ASSERT_TRUE(sets.ok()) << sets.error().ToString();
  EXPECT_EQ(sets->train->size(), 6);
  EXPECT_EQ(sets->test->size(), 2);
  EXPECT_EQ(sets->train->classes(), 3);
  EXPECT_EQ(sets->train->sample_shape(), (std::vector<int64_t>{1, 4, 5}));
  const Batch batch = sets->train->Get(std::vector<int64_t>{5, 0, 5});
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{3, 1, 4, 5}));
  EXPECT_EQ(batch.inputs.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(batch.targets, torch::tensor({2, 0, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.inputs[0], batch.inputs[2]));
  EXPECT_EQ(sets->train->Get({}).targets.numel(), 0);
}

TEST_F(Idx, NormalisesByTheTrainingImages) {
  const auto sets = OpenIdx(folder_);
  const at::Tensor all = sets->train->Get(std::vector<int64_t>{0, 1, 2, 3, 4, 5}).inputs;
  EXPECT_NEAR(all.mean().item<double>(), 0, 1e-5);
  EXPECT_NEAR(all.std(/*unbiased=*/false).item<double>(), 1, 1e-5);
  EXPECT_TRUE(at::equal(sets->test->Get(std::vector<int64_t>{1}).inputs,
                        sets->train->Get(std::vector<int64_t>{1}).inputs));
}

TEST_F(Idx, ReadsCompressedFiles) {
  const auto plain = OpenIdx(folder_);
  for (const std::string name : {"train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const std::string content = *ReadFile(folder_ + "/" + name);
    Remove(name);
    (void)Gzip(content, folder_ + "/" + name + ".gz");
  }
  const auto sets = OpenIdx(folder_);
  ASSERT_TRUE(sets.ok()) << sets.error().ToString();
  const std::vector<int64_t> ids = {0, 5};
  EXPECT_TRUE(at::equal(sets->train->Get(ids).inputs, plain->train->Get(ids).inputs));
}

TEST_F(Idx, ImagesOfOneColourStayFinite) {
  Write("train-images-idx3-ubyte", Word(0x803) + Word(6) + Word(4) + Word(5) + std::string(120, '\x80'));
  const auto sets = OpenIdx(folder_);
  ASSERT_TRUE(sets.ok());
  EXPECT_TRUE(at::isfinite(sets->train->Get(std::vector<int64_t>{0}).inputs).all().item<bool>());
}

TEST_F(Idx, NamesTheFileThatLacks) {
  Remove("t10k-labels-idx1-ubyte");
  ExpectRefused("t10k-labels-idx1-ubyte");
}

TEST_F(Idx, RefusesImagesAndLabelsOfDifferentNumber) {
  Write("train-labels-idx1-ubyte", Labels(5, 3));
  ExpectRefused("6 images but 5 labels");
}

TEST_F(Idx, RefusesTestImagesOfAnotherSize) {
  Write("t10k-images-idx3-ubyte", Images(2, 5, 4));
  ExpectRefused("differ in size");
}

TEST_F(Idx, RefusesWhatIsNoFolder) {
  for (const std::string& path :
       {std::string("/nowhere"), std::string(), folder_ + "/train-labels-idx1-ubyte",
        folder_ + "/" + std::string(300, 'x')}) {
    const auto sets = OpenIdx(path);
    ASSERT_FALSE(sets.ok()) << path;
    EXPECT_THAT(sets.error().message, HasSubstr("spec.training.data.path")) << path;
  }
}

struct Hostile {
  const char* name;
  std::string file;  // instead of the training images
};

void PrintTo(const Hostile& hostile, std::ostream* out) { *out << hostile.name; }

class HostileIdx : public Idx, public ::testing::WithParamInterface<Hostile> {};

TEST_P(HostileIdx, IsRejectedWithItsName) {
  Write("train-images-idx3-ubyte", GetParam().file);
  ExpectRefused("train-images-idx3-ubyte is not an IDX file of unsigned bytes");
}

TEST_P(HostileIdx, IsRefusedCompressed) {
  Remove("train-images-idx3-ubyte");
  (void)Gzip(GetParam().file, folder_ + "/train-images-idx3-ubyte.gz");
  ExpectRefused("train-images-idx3-ubyte.gz is not an IDX file of unsigned bytes");
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileIdx,
    ::testing::Values(
        Hostile{"Empty", ""}, Hostile{"MagicCut", "\x00\x00"},
        Hostile{"Html", "<html><body>404 not found</body></html>"}, Hostile{"OfLabels", Labels(6, 3)},
        Hostile{"OfFloats", Word(0xD03) + Images(6, 4, 5).substr(4)},
        Hostile{"OfFourDimensions", Word(0x804) + Images(6, 4, 5).substr(4)},
        Hostile{"CountsCut", Images(6, 4, 5).substr(0, 14)},
        Hostile{"PixelsCut", Images(6, 4, 5).substr(0, 135)},
        Hostile{"NoPixels", Images(6, 4, 5).substr(0, 16)}, Hostile{"PixelsLeftOver", Images(6, 4, 5) + "x"},
        Hostile{"NoImages", Images(0, 4, 5)}, Hostile{"NoHeight", Images(6, 0, 5)},
        Hostile{"MoreThanTheFileHolds", Word(0x803) + Word(1000) + Word(1000) + Word(4000) + "x"},
        Hostile{"CountsThatOverflow", Word(0x803) + Word(~0U) + Word(~0U) + Word(~0U) + "x"}),
    [](const auto& test) { return test.param.name; });

TEST_F(Idx, RefusesADamagedCompressedFile) {
  const std::string name = "train-images-idx3-ubyte";
  const std::string sound = Gzip(Images(6, 4, 5), folder_ + "/" + name + ".gz");
  Remove(name);
  for (std::size_t length = 2; length < sound.size(); ++length) {
    Write(name + ".gz", sound.substr(0, length));
    EXPECT_FALSE(OpenIdx(folder_).ok()) << "cut to " << length;
  }
  for (std::size_t place = 10; place < sound.size(); ++place) {  // after gzip's own header
    if (place == sound.size() - 9) continue;  // before the checksum: padding with unused bits
    std::string damaged = sound;
    damaged[place] = static_cast<char>(damaged[place] ^ 4);
    Write(name + ".gz", damaged);
    EXPECT_FALSE(OpenIdx(folder_).ok()) << "byte " << place << " of " << sound.size();
  }
}

}  // namespace
}  // namespace lockstep::data
