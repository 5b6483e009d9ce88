#include "runtime/data/image_folder.h"

#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "runtime/common/base/error_exception.h"
#include "runtime/common/base/file.h"
#include "runtime/data/bad_path.h"
#include "runtime/data/corrupt_records.h"
#include "runtime/data/image.h"
#include "runtime/data/tensors.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLargestImage = uintmax_t{1} << 28;
constexpr const char* kLayout =
    "format imageFolder needs train/CLASS/ and test/CLASS/ in that folder, with files .jpg, .jpeg or .png";

struct Listing {
  std::string folder;
  std::string name;  // name of the folder: "train"
  FileAccess access;
  std::vector<std::string> classes;  // sorted
  std::vector<std::string>
      files;                    // names in the folder of their class, class after class, sorted within each
  std::vector<int64_t> labels;  // of each file
};

class ImageFolder final : public Dataset {
 public:
  ImageFolder(Listing listing, int64_t side, api::OnCorruptRecord on_corrupt)
      : listing_(std::move(listing)),
        labels_(torch::tensor(listing_.labels, at::kLong)),
        side_(side),
        skips_(on_corrupt == api::OnCorruptRecord::kSkip) {}

  [[nodiscard]] int64_t size() const override { return labels_.size(0); }
  [[nodiscard]] int64_t classes() const override { return static_cast<int64_t>(listing_.classes.size()); }
  [[nodiscard]] std::vector<int64_t> sample_shape() const override { return {3, side_, side_}; }
  [[nodiscard]] at::Tensor labels() const override { return labels_; }

  [[nodiscard]] Batch Get(std::span<const int64_t> ids) const override {
    const at::NoGradGuard guard;
    if (listing_.access.copy != nullptr) WaitFor(ids);
    // A corrupt image is black.
    const at::Tensor inputs = at::zeros({static_cast<int64_t>(ids.size()), 3, side_, side_}, at::kFloat);
    Batch batch{inputs, labels_.index_select(0, IndexOf(ids))};
    auto* sample = inputs.data_ptr<float>();
    for (std::size_t row = 0; row < ids.size(); ++row) {
      const std::string path = PathOf(static_cast<std::size_t>(ids[row]));
      Result<Image> image = Read(path);
      if (image.ok()) {
        Scale(*image, sample);
      } else if (skips_) {
        corrupt_records_.Report(ids[row], path, image.error().message);
        batch.corrupt.push_back(static_cast<int64_t>(row));
      } else {
        throw Unusable(path, image.error().message);
      }
      sample += 3 * side_ * side_;
    }
    return batch;
  }

 private:
  // "train/cat/1.jpg"
  [[nodiscard]] std::string NameOf(std::size_t id) const {
    const std::string& name = listing_.classes[static_cast<std::size_t>(listing_.labels[id])];
    return listing_.name + "/" + name + "/" + listing_.files[id];
  }
  [[nodiscard]] std::string PathOf(std::size_t id) const { return listing_.folder + "/" + NameOf(id); }

  void WaitFor(std::span<const int64_t> ids) const {
    std::vector<Stretch> images;
    for (const int64_t id : ids) images.push_back({.object = NameOf(static_cast<std::size_t>(id))});
    listing_.access.copy->Need(images);
  }

  // Returns an error if the content is invalid (see DecodeImage); throws if the file cannot be read.
  [[nodiscard]] Result<Image> Read(const std::string& path) const {
    std::error_code error;
    if (const uintmax_t bytes = fs::file_size(path, error); !error && bytes > kLargestImage)
      return Error{ErrorCode::kDataLoss,
                   "has " + std::to_string(bytes) + " bytes, more than any image needs"};
    const Result<std::string> content =
        WithRetries<std::string>(listing_.access.retries, [&] { return ReadFile(path); });
    if (!content.ok()) ThrowUnreadable(CodedForBatches(content.error()));
    return DecodeImage(*content);
  }

  // Writes [3, side, side]. Each output pixel is the mean of all input pixels that it covers, to avoid
  // aliasing.
  void Scale(Image& image, float* sample) const {
    const at::Tensor pixels = at::from_blob(image.pixels.data(), {1, image.height, image.width, 3}, at::kByte)
                                  .permute({0, 3, 1, 2});
    const at::Tensor scaled = at::_upsample_bilinear2d_aa(pixels, {side_, side_}, /*align_corners=*/false)
                                  .permute({0, 2, 3, 1})
                                  .contiguous();
    const auto* value = scaled.const_data_ptr<uint8_t>();
    // A loop of our own: LibTorch would parallelise each call over all processors on each of the loader's
    // threads, which takes ten times as long if all are busy.
    const int64_t places = side_ * side_;
    for (int64_t place = 0; place < places; ++place) {
      for (int64_t channel = 0; channel < 3; ++channel)
        sample[channel * places + place] = static_cast<float>(*value++) / 255;
    }
  }

  // A denied permission is permanent. A missing file may exist in the next round.
  static Error CodedForBatches(Error error) {
    if (error.code == ErrorCode::kForbidden) error.code = ErrorCode::kDataLoss;
    if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kInternal;
    return error.WithContext("spec.training.data.path");
  }

  static ErrorException Unusable(const std::string& path, const std::string& problem) {
    return ErrorException(
        {ErrorCode::kDataLoss, BadPath(path + " " + problem, "replace or remove it").message});
  }

  const Listing listing_;
  const at::Tensor labels_;
  const int64_t side_;
  const bool skips_;
  mutable CorruptRecords corrupt_records_;  // logging does not change what Get returns
};

struct Entry {
  std::string name;
  bool is_folder = false;
  bool is_file = false;
};

struct Wanted {
  bool (*fits)(const Entry& entry);
  const char* what;
};

bool IsFolder(const Entry& entry) { return entry.is_folder; }

bool IsImageFile(const Entry& entry) {
  std::string ending = fs::path(entry.name).extension().string();
  for (char& c : ending) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return (ending == ".jpg" || ending == ".jpeg" || ending == ".png") && entry.is_file;
}

Result<std::vector<Entry>> EntriesOnDisk(const std::string& folder) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    std::error_code of_entry;  // without it, a denied permission throws
    entries.push_back(
        {at->path().filename().string(), at->is_directory(of_entry), at->is_regular_file(of_entry)});
    if (MayPass(of_entry.value())) return UnreadablePath(at->path().string(), of_entry.value(), kLayout);
  }
  if (error) return UnreadablePath(folder, error.value(), kLayout);
  return entries;
}

// The objects below the folder, from a list ordered by name.
std::vector<Entry> EntriesAmong(const std::vector<RemoteObject>& objects, const std::string& folder) {
  const std::string prefix = folder + "/";
  std::vector<Entry> entries;
  for (auto at = std::lower_bound(objects.begin(), objects.end(), prefix,
                                  [](const RemoteObject&one, const auto&name) { return one.name < name; });
       at != objects.end() && at->name.starts_with(prefix); ++at) {
    const std::size_t end = at->name.find('/', prefix.size());
    std::string name = at->name.substr(prefix.size(), end - prefix.size());
    const bool is_folder = end != std::string::npos;
    if (entries.empty() || entries.back().name != name)
      entries.push_back({std::move(name), is_folder, !is_folder});
  }
  return entries;
}

// Sorted, so that every process assigns the same numbers. Names that begin with a dot are ignored: file
// browsers create such files, and Kubernetes uses them in a mounted ConfigMap.
Result<std::vector<std::string>> NamesIn(const Listing& listing, const std::string& name,
                                         const Wanted& wanted) {
  const std::string folder = listing.folder + "/" + name;
  std::vector<Entry> entries;
  if (listing.access.copy != nullptr) {
    entries = EntriesAmong(listing.access.copy->objects(), name);
  } else {
    LOCKSTEP_TRY(entries, EntriesOnDisk(folder));
  }
  std::vector<std::string> names;
  for (Entry& entry : entries) {
    if (entry.name.starts_with('.')) continue;
    if (!wanted.fits(entry)) return BadPath(folder + "/" + entry.name + " is no " + wanted.what, kLayout);
    names.push_back(std::move(entry.name));
  }
  if (names.empty()) return BadPath(folder + " holds no " + wanted.what, kLayout);
  std::sort(names.begin(), names.end());
  return names;
}

Result<Listing> List(Listing listing) {
  LOCKSTEP_TRY(listing.classes, NamesIn(listing, listing.name, {IsFolder, "folder of a class"}));
  for (std::size_t label = 0; label < listing.classes.size(); ++label) {
    LOCKSTEP_TRY(std::vector<std::string> files,
                 NamesIn(listing, listing.name + "/" + listing.classes[label], {IsImageFile, "image file"}));
    listing.labels.insert(listing.labels.end(), files.size(), static_cast<int64_t>(label));
    std::move(files.begin(), files.end(), std::back_inserter(listing.files));
  }
  return listing;
}

}  // namespace

Result<Datasets> OpenImageFolder(const std::string& folder, const api::ImageFolderSpec& spec,
                                 api::OnCorruptRecord on_corrupt, const FileAccess& access) {
  LOCKSTEP_TRY(Listing train, List({.folder = folder, .name = "train", .access = access}));
  LOCKSTEP_TRY(Listing test, List({.folder = folder, .name = "test", .access = access}));
  std::vector<std::string> differing;
  std::set_symmetric_difference(train.classes.begin(), train.classes.end(), test.classes.begin(),
                                test.classes.end(), std::back_inserter(differing));
  if (!differing.empty()) {
    return BadPath(folder + ": only one of train and test has the class " + differing.front(),
                   "both need the same folders");
  }
  Datasets sets;
  sets.train = std::make_unique<ImageFolder>(std::move(train), spec.image_size, on_corrupt);
  sets.test = std::make_unique<ImageFolder>(std::move(test), spec.image_size, on_corrupt);
  return sets;
}

}  // namespace lockstep::data
