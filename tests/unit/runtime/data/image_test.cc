#include "runtime/data/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>  // before jpeglib.h, which names FILE

#include <jpeglib.h>

#include <cstdlib>
#include <random>

#include "tests/unit/runtime/data/png_bytes.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct JpegKind {
  JDIMENSION width = 0;
  JDIMENSION height = 0;
  J_COLOR_SPACE colour = JCS_RGB;
  bool progressive = false;
  bool adobe_marker = true;
};

// The left half in one colour, the right half in another.
std::string JpegBytes(const JpegKind& kind, const std::vector<uint8_t>& left,
                      const std::vector<uint8_t>& right) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* content = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &content, &size);
  info.image_width = kind.width;
  info.image_height = kind.height;
  info.input_components = static_cast<int>(left.size());
  info.in_color_space = kind.colour;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  if (kind.progressive) jpeg_simple_progression(&info);
  info.write_Adobe_marker = kind.colour == JCS_CMYK && kind.adobe_marker;
  jpeg_start_compress(&info, TRUE);
  std::vector<uint8_t> row;
  for (JDIMENSION x = 0; x < kind.width; ++x) {
    const std::vector<uint8_t>& pixel = x < kind.width / 2 ? left : right;
    row.insert(row.end(), pixel.begin(), pixel.end());
  }
  JSAMPROW rows[] = {row.data()};
  while (info.next_scanline < info.image_height) jpeg_write_scanlines(&info, rows, 1);
  jpeg_finish_compress(&info);
  std::string bytes(reinterpret_cast<char*>(content), size);
  jpeg_destroy_compress(&info);
  std::free(content);
  return bytes;
}

std::string RedAndBlueJpeg(bool progressive = false) {
  return JpegBytes({.width = 32, .height = 16, .progressive = progressive}, {250, 5, 5}, {5, 5, 250});
}

std::vector<uint8_t> PixelAt(const Image& image, int64_t row, int64_t column) {
  const auto at = image.pixels.begin() + 3 * (row * image.width + column);
  return {at, at + 3};
}

Image Decoded(const std::string& bytes) {
  auto image = DecodeImage(bytes);
  EXPECT_TRUE(image.ok()) << image.error().message;
  return image.ok() ? std::move(image).value() : Image{1, 1, std::vector<uint8_t>(3)};
}

std::string ProblemOf(const std::string& bytes) {
  const auto image = DecodeImage(bytes);
  if (image.ok()) return "";
  EXPECT_EQ(image.error().code, ErrorCode::kDataLoss);
  return image.error().message;
}

testing::Matcher<std::vector<uint8_t>> About(int red, int green, int blue) {
  const auto near = [](int value) { return testing::AllOf(testing::Ge(value - 4), testing::Le(value + 4)); };
  return ElementsAre(near(red), near(green), near(blue));
}

TEST(DecodeImage, ReadsJpeg) {
  for (const bool progressive : {false, true}) {
    const Image image = Decoded(RedAndBlueJpeg(progressive));
    EXPECT_EQ(image.height, 16);
    EXPECT_EQ(image.width, 32);
    EXPECT_THAT(PixelAt(image, 3, 2), About(250, 5, 5));
    EXPECT_THAT(PixelAt(image, 15, 31), About(5, 5, 250));
  }
  const Image grey = Decoded(JpegBytes({.width = 16, .height = 8, .colour = JCS_GRAYSCALE}, {40}, {200}));
  EXPECT_THAT(PixelAt(grey, 7, 0), About(40, 40, 40));
  EXPECT_THAT(PixelAt(grey, 0, 15), About(200, 200, 200));
}

TEST(DecodeImage, ReadsTheInksOfPrint) {
  const JpegKind adobe{.width = 32, .height = 16, .colour = JCS_CMYK};
  const JpegKind plain{.width = 32, .height = 16, .colour = JCS_CMYK, .adobe_marker = false};
  // The file stores inverted inks: white, and grey with more red.
  const Image inverted = Decoded(JpegBytes(adobe, {255, 255, 255, 255}, {255, 0, 0, 128}));
  EXPECT_THAT(PixelAt(inverted, 0, 0), About(255, 255, 255));
  EXPECT_THAT(PixelAt(inverted, 8, 31), About(128, 0, 0));
  const Image inks = Decoded(JpegBytes(plain, {0, 0, 0, 0}, {0, 255, 255, 127}));
  EXPECT_EQ(inverted.pixels, inks.pixels);
}

TEST(DecodeImage, ReadsPng) {
  const Image rgb = Decoded(PngBytes({.width = 2, .height = 2}, "abcdefghijkl"));
  EXPECT_EQ(rgb.height, 2);
  EXPECT_EQ(rgb.width, 2);
  EXPECT_EQ(std::string(rgb.pixels.begin(), rgb.pixels.end()), "abcdefghijkl");
  const Image grey = Decoded(PngBytes({.width = 2, .height = 1, .colour = PngColour::kGrey}, "\x07\x80"));
  EXPECT_THAT(grey.pixels, ElementsAre(7, 7, 7, 128, 128, 128));
  const Image deep = Decoded(
      PngBytes({.width = 2, .height = 1, .colour = PngColour::kGrey, .depth = 16}, "\x07\x07\x80\x80"));
  EXPECT_THAT(deep.pixels, ElementsAre(7, 7, 7, 128, 128, 128));
  const Image palette = Decoded(PngBytes({.width = 2, .height = 1, .colour = PngColour::kPalette},
                                         std::string("\x01\x00", 2), PngChunk("PLTE", "redBLU")));
  EXPECT_EQ(std::string(palette.pixels.begin(), palette.pixels.end()), "BLUred");
}

TEST(DecodeImage, PutsBlackBehindWhatIsTransparent) {
  const std::string pixels(
      "abc\x00"
      "abc\xff",
      8);
  const Image image = Decoded(PngBytes({.width = 2, .height = 1, .colour = PngColour::kRgba}, pixels));
  EXPECT_THAT(image.pixels, ElementsAre(0, 0, 0, 'a', 'b', 'c'));
}

TEST(DecodeImage, SaysWhatIsNoImage) {
  for (const char* bytes : {"", "GIF89a", "\x89PNG", "\xff\xd8"})
    EXPECT_EQ(ProblemOf(bytes), "is neither a JPEG nor a PNG image");
}

TEST(DecodeImage, RefusesWhatIsCut) {
  for (const std::string& whole : {RedAndBlueJpeg(), RedAndBlueJpeg(true)}) {
    for (std::size_t bytes = 3; bytes < whole.size(); ++bytes)
      EXPECT_THAT(ProblemOf(whole.substr(0, bytes)), HasSubstr("is damaged: ")) << bytes;
  }
  const std::string png = PngBytes({.width = 2, .height = 2}, "abcdefghijkl");
  const std::size_t end_chunk = 12;  // it has no content
  for (std::size_t bytes = 8; bytes < png.size() - end_chunk; ++bytes)
    EXPECT_THAT(ProblemOf(png.substr(0, bytes)), HasSubstr("is damaged: ")) << bytes;
}

// As some cameras write it.
TEST(DecodeImage, MindsNoBytesBetweenThePartsOfAJpeg) {
  std::string bytes = RedAndBlueJpeg();
  bytes.insert(bytes.find("\xff\xdb"), 2, '\0');
  EXPECT_EQ(Decoded(bytes).pixels, Decoded(RedAndBlueJpeg()).pixels);
}

TEST(DecodeImage, RefusesAbsurdSizesBeforeItTakesTheMemory) {
  EXPECT_EQ(ProblemOf(PngBytes({.width = 100000, .height = 90000}, "")),
            "has 100000 x 90000 pixels, more than 67108864");
  EXPECT_THAT(ProblemOf(PngBytes({.width = 0x7fffffff, .height = 0x7fffffff}, "")),
              HasSubstr("is damaged: "));
  std::string jpeg = RedAndBlueJpeg();
  jpeg.replace(jpeg.find("\xff\xc0") + 5, 4, "\xfd\xe8\xfd\xe9");  // its height and width
  EXPECT_EQ(ProblemOf(jpeg), "has 65001 x 65000 pixels, more than 67108864");
}

TEST(DecodeImage, SurvivesAnyDamage) {
  std::mt19937 random(5);
  const std::string pixels(std::size_t{16} * 16 * 4, 'x');
  const std::string sound[] = {RedAndBlueJpeg(), RedAndBlueJpeg(true),
                               PngBytes({.width = 16, .height = 16, .colour = PngColour::kRgba}, pixels)};
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = sound[i % 3];
    for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto image = DecodeImage(bytes);
    if (image.ok()) {
      EXPECT_EQ(image->pixels.size(), static_cast<std::size_t>(3 * image->height * image->width));
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace lockstep::data
