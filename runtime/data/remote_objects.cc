#include "runtime/data/remote_objects.h"

#include <utility>

#include "runtime/storage/s3_client.h"

namespace lockstep::data {
namespace {

using storage::S3Client;
using storage::S3Object;

// No retries here: fetch.h knows which errors another try may mend, and shows life in between.
constexpr storage::S3Patience kOneTry{.silence_seconds = 10, .retries = 0};

class S3Objects final : public RemoteObjects {
 public:
  S3Objects(S3Client client, std::string path) : client_(std::move(client)), path_(std::move(path)) {}

  Result<RemoteObject> Find(const std::string& name) override {
    LOCKSTEP_TRY(S3Object object, client_.Find(Path(name)));
    return Relative(std::move(object));
  }
  Result<std::vector<RemoteObject>> List() override {
    LOCKSTEP_TRY(std::vector<S3Object> found, client_.List(path_));
    std::vector<RemoteObject> objects;
    objects.reserve(found.size());
    for (S3Object& object : found) objects.push_back(Relative(std::move(object)));
    return objects;
  }
  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    return client_.Read(Path(name), offset, target);
  }

 private:
  [[nodiscard]] std::string Path(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] RemoteObject Relative(S3Object object) const {
    return {object.path.substr(path_.size() + 1), object.bytes, std::move(object.version)};
  }

  S3Client client_;
  const std::string path_;  // "bucket/folder"
};

}  // namespace

Result<std::unique_ptr<RemoteObjects>> OpenRemoteObjects(const api::DataSpec& spec) {
  // A Secret of its own arrives under names of its own; else the variables are those of the checkpoints.
  const std::string own_secret = "spec.training.data.secretRef";
  const storage::S3Use use{
      .field = "spec.training.data.path",
      .secret_field = spec.secret_ref ? own_secret : own_secret + " or spec.checkpoint.secretRef",
      .variable_prefix = spec.secret_ref ? api::kDataVariablePrefix : ""};
  const std::string path = api::RemotePath(spec);
  LOCKSTEP_TRY(const storage::S3Settings settings, storage::S3SettingsFromEnvironment(use, path));
  LOCKSTEP_TRY(S3Client client, S3Client::Make(settings, kOneTry));
  return std::unique_ptr<RemoteObjects>(std::make_unique<S3Objects>(std::move(client), path));
}

}  // namespace lockstep::data
