#include "runtime/data/idx.h"

#include <torch/torch.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <utility>

#include "runtime/data/bad_path.h"
#include "runtime/data/tensors.h"

namespace lockstep::data {
namespace {

constexpr int64_t kLargestIdxFile = int64_t{4} << 30;
constexpr const char* kIdxFiles =
    "format idx needs the four files train-images-idx3-ubyte, train-labels-idx1-ubyte, "
    "t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte in that folder";

struct Normalisation {
  float mean = 0;
  float deviation = 1;
};

class IdxDataset final : public Dataset {
 public:
  IdxDataset(at::Tensor images, at::Tensor labels, int64_t classes, Normalisation normalisation)
      : images_(std::move(images)),
        labels_(std::move(labels)),
        classes_(classes),
        normalisation_(normalisation) {}

  [[nodiscard]] int64_t size() const override { return images_.size(0); }
  [[nodiscard]] int64_t classes() const override { return classes_; }
  [[nodiscard]] std::vector<int64_t> sample_shape() const override {
    return {1, images_.size(1), images_.size(2)};
  }
  [[nodiscard]] at::Tensor labels() const override { return labels_.to(at::kLong); }

  [[nodiscard]] bool is_in_memory() const override { return true; }
  [[nodiscard]] Batch Get(std::span<const int64_t> ids) const override {
    const at::NoGradGuard guard;
    const at::Tensor index = IndexOf(ids);
    at::Tensor pixels = images_.index_select(0, index).unsqueeze(1).to(at::kFloat);
    pixels.sub_(normalisation_.mean).div_(normalisation_.deviation);
    return {pixels, labels_.index_select(0, index).to(at::kLong)};
  }

 private:
  at::Tensor images_;  // uint8 [n, height, width]
  at::Tensor labels_;  // uint8 [n]
  int64_t classes_;
  Normalisation normalisation_;
};

struct GzClose {
  void operator()(gzFile file) const { gzclose(file); }
};
using GzFile = std::unique_ptr<std::remove_pointer_t<gzFile>, GzClose>;

bool ReadExactly(gzFile file, void* target, int64_t bytes) {
  auto* at = static_cast<char*>(target);
  while (bytes > 0) {
    const auto piece = static_cast<unsigned int>(std::min<int64_t>(bytes, 1 << 24));
    const int got = gzread(file, at, piece);
    if (got <= 0) return false;
    at += got;
    bytes -= got;
  }
  return true;
}

// No data follows, and for a compressed file the checksum at its end is present and correct.
bool IsAtItsEnd(gzFile file) {
  char one_more = 0;
  int problem = Z_OK;
  if (gzread(file, &one_more, 1) != 0) return false;
  (void)gzerror(file, &problem);
  return problem == Z_OK;
}

uint32_t BigEndian(const std::array<unsigned char, 4>& bytes) {
  return (uint32_t{bytes[0]} << 24) | (uint32_t{bytes[1]} << 16) | (uint32_t{bytes[2]} << 8) |
         uint32_t{bytes[3]};
}

// Describes why a read failed.
Error NotRead(gzFile file, const std::string& path) {
  const int number = errno;
  int problem = Z_OK;
  (void)gzerror(file, &problem);
  if (problem == Z_ERRNO) return UnreadablePath(path, number, "check the disk");
  return BadPath(path + " is not an IDX file of unsigned bytes", "replace the file");
}

// Deflate expands a byte to at most 1032 bytes: larger counts are wrong, and no memory is allocated for them.
Result<int64_t> LargestContent(const std::string& path) {
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error) return UnreadablePath(path, error.value(), kIdxFiles);
  return std::min(size, kLargestIdxFile) * 1032;
}

// Finds the file by its name or with ".gz" (zlib reads both).
Result<std::string> Locate(const std::string& folder, const std::string& name) {
  for (const std::string& candidate : {folder + "/" + name, folder + "/" + name + ".gz"}) {
    std::error_code error;  // without it, a denied permission throws
    if (std::filesystem::is_regular_file(candidate, error)) return candidate;
    if (MayPass(error.value())) return UnreadablePath(candidate, error.value(), kIdxFiles);
  }
  return BadPath(folder + " has no " + name + " (or .gz)", kIdxFiles);
}

// Reads an unsigned-byte IDX file with `dimensions` dimensions.
Result<at::Tensor> ReadIdx(const std::string& folder, const std::string& name, uint32_t dimensions) {
  LOCKSTEP_TRY(const std::string path, Locate(folder, name));
  const GzFile file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) return UnreadablePath(path, errno, "check its permissions");
  std::array<unsigned char, 4> word{};
  if (!ReadExactly(file.get(), word.data(), 4) || BigEndian(word) != (0x00000800U | dimensions))
    return NotRead(file.get(), path);
  std::vector<int64_t> shape;
  int64_t bytes = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    if (!ReadExactly(file.get(), word.data(), 4)) return NotRead(file.get(), path);
    shape.push_back(BigEndian(word));
    if (shape.back() == 0 || shape.back() > kLargestIdxFile / bytes) return NotRead(file.get(), path);
    bytes *= shape.back();
  }
  LOCKSTEP_TRY(const int64_t most, LargestContent(path));
  if (bytes > most) return NotRead(file.get(), path);
  at::Tensor content = at::empty(shape, at::kByte);
  if (!ReadExactly(file.get(), content.data_ptr(), bytes) || !IsAtItsEnd(file.get()))
    return NotRead(file.get(), path);
  return content;
}

Normalisation Measure(const at::Tensor& images) {
  std::array<int64_t, 256> histogram{};
  const uint8_t* pixels = images.data_ptr<uint8_t>();
  for (int64_t i = 0; i < images.numel(); ++i) ++histogram[pixels[i]];
  double sum = 0;
  double squares = 0;
  for (std::size_t value = 0; value < histogram.size(); ++value) {
    const auto count = static_cast<double>(histogram[value]);
    sum += count * static_cast<double>(value);
    squares += count * static_cast<double>(value * value);
  }
  const auto n = static_cast<double>(images.numel());
  const double mean = sum / n;
  const double variance = squares / n - mean * mean;
  return {static_cast<float>(mean), static_cast<float>(variance > 0 ? std::sqrt(variance) : 1.0)};
}

struct IdxSplit {
  at::Tensor images;
  at::Tensor labels;
};

Result<IdxSplit> ReadIdxSplit(const std::string& folder, const std::string& prefix) {
  LOCKSTEP_TRY(at::Tensor images, ReadIdx(folder, prefix + "-images-idx3-ubyte", 3));
  LOCKSTEP_TRY(at::Tensor labels, ReadIdx(folder, prefix + "-labels-idx1-ubyte", 1));
  if (images.size(0) != labels.size(0)) {
    return BadPath(folder + ": " + prefix + " has " + std::to_string(images.size(0)) + " images but " +
                       std::to_string(labels.size(0)) + " labels",
                   "replace the files");
  }
  return IdxSplit{std::move(images), std::move(labels)};
}

}  // namespace

Result<Datasets> OpenIdx(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    if (MayPass(error.value())) return UnreadablePath(folder, error.value(), kIdxFiles);
    return BadPath(folder + " is not a folder on this machine",
                   "name the folder of the data set as the worker container sees it");
  }
  LOCKSTEP_TRY(IdxSplit train, ReadIdxSplit(folder, "train"));
  LOCKSTEP_TRY(IdxSplit test, ReadIdxSplit(folder, "t10k"));
  if (train.images.sizes().slice(1) != test.images.sizes().slice(1)) {
    return BadPath(folder + ": training and test images differ in size", "replace the files");
  }
  const int64_t classes = 1 + std::max(train.labels.max().item<int64_t>(), test.labels.max().item<int64_t>());
  const Normalisation normalisation = Measure(train.images);
  Datasets sets;
  sets.train = std::make_unique<IdxDataset>(train.images, train.labels, classes, normalisation);
  sets.test = std::make_unique<IdxDataset>(test.images, test.labels, classes, normalisation);
  return sets;
}

}  // namespace lockstep::data
