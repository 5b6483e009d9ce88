// ObjectStore in a folder of this machine (or a mounted volume).

#include "runtime/checkpoint/file_store.h"

#include <algorithm>
#include <filesystem>

#include "runtime/common/base/file.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

class FileStore final : public ObjectStore {
 public:
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {}

  Result<void> Put(const std::string& name, std::string_view content) override {
    std::error_code error;
    fs::create_directories(fs::path(Path(name)).parent_path(), error);
    if (error) return Bad("cannot make a folder in it: " + error.message());
    const Result<void> written = WriteFile(Path(name), content);
    return written.ok() ? written : Bad(written.error().message);
  }

  Result<std::string> Get(const std::string& name) override { return ReadFile(Path(name)); }

  Result<std::vector<ObjectInfo>> List() override {
    std::vector<ObjectInfo> objects;
    std::error_code error;
    Collect(folder_, objects, error);
    if (error) return Bad("cannot be listed: " + error.message());
    std::sort(objects.begin(), objects.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return objects;
  }

  Result<void> Delete(const std::string& name) override {
    std::error_code error;
    fs::remove(Path(name), error);
    if (error) return Bad("cannot delete " + name + ": " + error.message());
    const fs::path parent = fs::path(Path(name)).parent_path();
    if (parent != fs::path(folder_))
      fs::remove(parent, error);  // the step's folder goes with its last object
    return {};
  }

  [[nodiscard]] std::string UriOf(const std::string& name) const override { return "file://" + Path(name); }

 private:
  // Another rank may delete objects and folders meanwhile; what is gone when its turn comes is left out.
  void Collect(const fs::path& folder, std::vector<ObjectInfo>& objects, std::error_code& error) const {
    fs::directory_iterator it(folder, error);
    if (error == std::errc::no_such_file_or_directory && folder != folder_) return error.clear();
    for (; !error && it != fs::directory_iterator(); it.increment(error)) {
      std::error_code gone;
      if (it->is_directory(gone)) {
        Collect(it->path(), objects, error);
        if (error) return;
      } else if (it->is_regular_file(gone)) {
        const auto bytes = static_cast<int64_t>(it->file_size(gone));
        if (!gone) objects.push_back({it->path().lexically_relative(folder_).string(), bytes});
      }
    }
  }

  [[nodiscard]] std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] Error Bad(const std::string& problem) const {
    return {ErrorCode::kForbidden, "spec.checkpoint.uri: file://" + folder_ + ": " + problem +
                                       "; name a folder that the worker may write to"};
  }

  const std::string folder_;
};

}  // namespace

Result<std::unique_ptr<ObjectStore>> OpenFileStore(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return Error{ErrorCode::kForbidden, "spec.checkpoint.uri: file://" + folder + ": " + error.message() +
                                            "; name a folder that the worker may write to"};
  }
  auto store = std::make_unique<FileStore>(folder);
  LOCKSTEP_TRY(CheckWritable(*store));
  return std::unique_ptr<ObjectStore>(std::move(store));
}

}  // namespace lockstep::checkpoint
