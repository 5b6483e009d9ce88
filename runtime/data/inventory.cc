#include "runtime/data/inventory.h"

#include <string>
#include <utility>

#include "runtime/common/base/strings.h"
#include "runtime/data/bad_path.h"

namespace lockstep::data {
namespace {

using Names = std::vector<std::string>;

// The files that a format opens: on each line alternatives, of which the first existing one is used.
std::vector<Names> FilesOf(api::DataFormat format) {
  switch (format) {
    case api::DataFormat::kIdx: {
      std::vector<Names> files;
      for (const std::string name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                     "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"})
        files.push_back({name, name + ".gz"});
      return files;
    }
    case api::DataFormat::kCsv: return {{"train.csv"}, {"test.csv"}};
    case api::DataFormat::kNpy:
      return {{"train-inputs.npy"}, {"train-targets.npy"}, {"test-inputs.npy"}, {"test-targets.npy"}};
    case api::DataFormat::kTokens: return {{"train.bin", "train.txt"}, {"val.bin", "val.txt"}};
    case api::DataFormat::kImageFolder:
    case api::DataFormat::kSynthetic:
    case api::DataFormat::kPlugin: return {};
  }
  return {};
}

Result<RemoteObject> FindOne(const api::DataSpec& spec, RemoteObjects& source, const FetchOptions& options,
                             const Names& names) {
  for (const std::string& name : names) {
    Result<RemoteObject> found =
        WithRetries<RemoteObject>(options.retries, [&] { return source.Find(name); });
    if (found.ok() || found.error().code != ErrorCode::kNotFound) return found;
  }
  return BadPath(spec.path + " has no " + Join(names, " or "),
                 "format " + std::string(NameOf(spec.format)) +
                     " needs it; put it there, or correct the bucket or the folder");
}

// Listed at once, because there are many.
Result<std::vector<RemoteObject>> ListImages(const api::DataSpec& spec, RemoteObjects& source,
                                             const FetchOptions& options) {
  LOCKSTEP_TRY(std::vector<RemoteObject> objects,
               WithRetries<std::vector<RemoteObject>>(options.retries, [&] { return source.List(); }));
  std::erase_if(objects, [](const RemoteObject& object) {
    const bool is_data = object.name.starts_with("train/") || object.name.starts_with("test/");
    return !is_data || object.name.find("/.") != std::string::npos;  // as for local folders
  });
  if (objects.empty())
    return BadPath(spec.path + " has no objects below train/ and test/",
                   "format imageFolder needs train/CLASS/ and test/CLASS/ there");
  for (const RemoteObject& object : objects) {
    if (!IsPlainName(object.name))
      return BadPath(spec.path + " has an object " + object.name + ", which cannot be a file name",
                     "rename it");
  }
  return objects;
}

}  // namespace

bool IsPlainName(std::string_view name) {
  constexpr std::size_t kLongest = 200;  // of one component; ".partial" follows
  for (const std::string& component : Split(name, '/')) {
    const bool is_plain = !component.empty() && component != "." && component != ".." &&
                          component.size() <= kLongest && component.find('\0') == std::string::npos;
    if (!is_plain) return false;
  }
  return true;
}

std::string VersionOf(const std::vector<RemoteObject>& objects) {
  std::string text;
  for (const RemoteObject& object : objects)
    text += object.name + '\0' + std::to_string(object.bytes) + '\0' + object.version + '\0';
  return StableHash(text);
}

Result<std::vector<RemoteObject>> TakeInventory(const api::DataSpec& spec, RemoteObjects& source,
                                                const FetchOptions& options) {
  if (spec.format == api::DataFormat::kImageFolder) return ListImages(spec, source, options);
  std::vector<RemoteObject> objects;
  for (const Names& names : FilesOf(spec.format)) {
    LOCKSTEP_TRY(RemoteObject object, FindOne(spec, source, options, names));
    objects.push_back(std::move(object));
  }
  return objects;
}

}  // namespace lockstep::data
