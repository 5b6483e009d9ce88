#include "runtime/data/remote_objects.h"

#include <utility>

#include "runtime/storage/azure_client.h"
#include "runtime/storage/gcs_client.h"
#include "runtime/storage/s3_client.h"

namespace lockstep::data {
namespace {

using storage::StoreClient;
using storage::StoredObject;

// No retries here: fetch.h decides which errors are temporary, and reports signs of life in between.
constexpr storage::S3Patience kOneTry{.silence_seconds = 10, .retries = 0};
constexpr Seconds kGcsOneTry(1);

class StoredObjects final : public RemoteObjects {
 public:
  StoredObjects(StoreClient client, std::string path) : client_(std::move(client)), path_(std::move(path)) {}

  Result<RemoteObject> Find(const std::string& name) override {
    LOCKSTEP_TRY(StoredObject object, client_.Find(Path(name)));
    return Relative(std::move(object));
  }
  Result<std::vector<RemoteObject>> List() override {
    LOCKSTEP_TRY(std::vector<StoredObject> found, client_.List(path_));
    std::vector<RemoteObject> objects;
    objects.reserve(found.size());
    for (StoredObject& object : found) objects.push_back(Relative(std::move(object)));
    return objects;
  }
  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    return client_.Read(Path(name), offset, target);
  }

 private:
  [[nodiscard]] std::string Path(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] RemoteObject Relative(StoredObject object) const {
    return {object.path.substr(path_.size() + 1), object.bytes, std::move(object.version)};
  }

  StoreClient client_;
  const std::string path_;  // "bucket/folder"
};

Result<std::unique_ptr<RemoteObjects>> Open(StoreClient client, std::string path) {
  return std::unique_ptr<RemoteObjects>(std::make_unique<StoredObjects>(std::move(client), std::move(path)));
}

Result<std::unique_ptr<RemoteObjects>> OpenWith(const storage::StoreUse& use, const std::string& scheme,
                                                const std::string& path) {
  if (scheme == "gs") {
    LOCKSTEP_TRY(const storage::GcsSettings settings, storage::GcsSettingsFromEnvironment(use));
    LOCKSTEP_TRY(StoreClient client, storage::MakeGcsClient(settings, kGcsOneTry));
    return Open(std::move(client), path);
  }
  if (scheme == "abfs") {
    LOCKSTEP_TRY(const storage::AzureSettings settings, storage::AzureSettingsFromEnvironment(use, path));
    LOCKSTEP_TRY(StoreClient client, storage::MakeAzureClient(settings));
    return Open(std::move(client), settings.path);
  }
  LOCKSTEP_TRY(const storage::S3Settings settings, storage::S3SettingsFromEnvironment(use, path));
  LOCKSTEP_TRY(StoreClient client, storage::MakeS3Client(settings, kOneTry));
  return Open(std::move(client), path);
}

}  // namespace

Result<std::unique_ptr<RemoteObjects>> OpenRemoteObjects(const api::DataSpec& spec) {
  // The variables of a separate Secret have prefixed names; otherwise those of the checkpoints are used.
  const std::string own_secret = "spec.training.data.secretRef";
  const storage::StoreUse use{
      .field = "spec.training.data.path",
      .secret_field = spec.secret_ref ? own_secret : own_secret + " or spec.checkpoint.secretRef",
      .variable_prefix = spec.secret_ref ? api::kDataVariablePrefix : ""};
  return OpenWith(use, SchemeOf(spec), api::RemotePath(spec));
}

}  // namespace lockstep::data
