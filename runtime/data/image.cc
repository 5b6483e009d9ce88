#include "runtime/data/image.h"

#include <cstdio>  // before jpeglib.h, which names FILE

#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <string>

namespace lockstep::data {
namespace {

constexpr std::size_t kColours = 3;
constexpr std::size_t kInks = 4;

Error Bad(const std::string& problem) { return {ErrorCode::kDataLoss, problem}; }

Error Damaged(const char* message) { return Bad(std::string("is damaged: ") + message); }

Result<Image> MakeRoom(int64_t height, int64_t width) {
  if (height > kMostPixels / width) {
    return Bad("has " + std::to_string(width) + " x " + std::to_string(height) + " pixels, more than " +
               std::to_string(kMostPixels));
  }
  return Image{height, width, std::vector<uint8_t>(static_cast<std::size_t>(height * width) * kColours)};
}

// libjpeg reports an error through a function that must not return; ours uses longjmp back into the calling
// function. No skipped function may have objects with destructors: such functions hold only references and
// numbers, and everything else is a member here.
struct JpegDecoder {
  JpegDecoder() = default;
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&info); }

  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf failed{};
  char message[JMSG_LENGTH_MAX] = {};
};

[[noreturn]] void OnError(j_common_ptr info) {
  auto* decoder = static_cast<JpegDecoder*>(info->client_data);
  info->err->format_message(info, decoder->message);
  std::longjmp(decoder->failed, 1);
}

// For a truncated file libjpeg only warns, and fills missing pixels with grey.
bool LosesPixels(int warning) {
  switch (warning) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC: return true;
    default: return false;
  }
}

void OnMessage(j_common_ptr info, int level) {
  if (level < 0 && LosesPixels(info->err->msg_code)) OnError(info);
}

bool ReadHeader(JpegDecoder& decoder, std::string_view bytes) {
  jpeg_decompress_struct& info = decoder.info;
  info.err = jpeg_std_error(&decoder.errors);
  info.client_data = &decoder;
  decoder.errors.error_exit = OnError;
  decoder.errors.emit_message = OnMessage;
  if (setjmp(decoder.failed) != 0) return false;
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  (void)jpeg_read_header(&info, TRUE);
  info.out_color_space = info.num_components == static_cast<int>(kInks) ? JCS_CMYK : JCS_RGB;
  return true;
}

bool ReadRows(JpegDecoder& decoder, uint8_t* pixels, std::size_t row_bytes) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.failed) != 0) return false;
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels + info.output_scanline * row_bytes;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

// Converts CMYK to RGB. Adobe's programs store inverted ink values, and mark such files.
void ToColours(const std::vector<uint8_t>& inks, bool is_inverted, std::vector<uint8_t>& colours) {
  const auto free_of = [&](std::size_t at) {
    const unsigned int value = inks[at];
    return is_inverted ? value : 255 - value;
  };
  for (std::size_t i = 0; i < colours.size(); ++i) {
    const std::size_t pixel = i / kColours * kInks;
    colours[i] = static_cast<uint8_t>(free_of(pixel + i % kColours) * free_of(pixel + kColours) / 255);
  }
}

Result<Image> DecodeJpeg(std::string_view bytes) {
  JpegDecoder decoder;
  if (!ReadHeader(decoder, bytes)) return Damaged(decoder.message);
  const jpeg_decompress_struct& info = decoder.info;
  LOCKSTEP_TRY(Image image, MakeRoom(info.image_height, info.image_width));
  const std::size_t width = info.image_width;
  const bool has_inks = info.out_color_space == JCS_CMYK;
  std::vector<uint8_t> inks(has_inks ? image.pixels.size() / kColours * kInks : 0);
  const bool is_read = has_inks ? ReadRows(decoder, inks.data(), width * kInks)
                                : ReadRows(decoder, image.pixels.data(), width * kColours);
  if (!is_read) return Damaged(decoder.message);
  if (has_inks) ToColours(inks, info.saw_Adobe_marker, image.pixels);
  return image;
}

struct PngDecoder {
  PngDecoder() = default;
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder() { png_image_free(&info); }

  png_image info{.version = PNG_IMAGE_VERSION};
};

Result<Image> DecodePng(std::string_view bytes) {
  PngDecoder decoder;
  png_image& info = decoder.info;
  if (png_image_begin_read_from_memory(&info, bytes.data(), bytes.size()) == 0) return Damaged(info.message);
  LOCKSTEP_TRY(Image image, MakeRoom(info.height, info.width));
  info.format = PNG_FORMAT_RGB;
  info.flags |=
      PNG_IMAGE_FLAG_16BIT_sRGB;  // otherwise libpng assumes that 16-bit values are linear and brightens them
  const png_color black{};
  if (png_image_finish_read(&info, &black, image.pixels.data(), 0, nullptr) == 0)
    return Damaged(info.message);
  return image;
}

}  // namespace

Result<Image> DecodeImage(std::string_view bytes) {
  if (bytes.starts_with("\xff\xd8\xff")) return DecodeJpeg(bytes);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return DecodePng(bytes);
  return Bad("is neither a JPEG nor a PNG image");
}

}  // namespace lockstep::data
