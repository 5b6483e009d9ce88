#include "runtime/checkpoint/remote_store.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "runtime/storage/azure_client.h"
#include "runtime/storage/gcs_client.h"
#include "runtime/storage/s3_client.h"
#include "runtime/storage/s3_uploads.h"

namespace lockstep::checkpoint {
namespace {

using storage::S3Patience;
using storage::S3Settings;
using storage::StoreClient;
using storage::StoredObject;

// Opening does not wait for a store that is away: a rank that has peers does not need it, and other ranks
// wait when they restore. The retries handle conflicts between ranks that open the same location
// concurrently.
constexpr S3Patience kWhenOpening{.silence_seconds = 4, .retries = 5, .retry_window = Seconds(1)};
constexpr S3Patience kWhenTraining{.silence_seconds = 10, .retries = 3};
constexpr Seconds kGcsWhenOpening(1);
constexpr Seconds kGcsWhenTraining(30);

class RemoteStore final : public ObjectStore {
 public:
  // `path` is the path of `uri` in the store: "bucket/prefix". `s3` is set for S3, where uploads may remain
  // unfinished.
  RemoteStore(StoreClient client, std::string uri, std::string path, std::optional<S3Settings> s3)
      : client_(std::move(client)), uri_(std::move(uri)), path_(std::move(path)), s3_(std::move(s3)) {}

  Result<void> Put(const std::string& name, std::string_view content) override {
    return client_.Put(Path(name), content);
  }
  Result<void> PutPaced(const std::string& name, std::string_view content, const Pace& pace) override {
    return client_.PutPaced(Path(name), content, kPacedBytes, pace);
  }
  Result<std::string> Get(const std::string& name) override { return client_.Get(Path(name)); }
  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    return client_.Read(Path(name), offset, target);
  }
  Result<std::vector<ObjectInfo>> List() override {
    LOCKSTEP_TRY(const std::vector<StoredObject> found, client_.List(path_));
    std::vector<ObjectInfo> objects;
    objects.reserve(found.size());
    for (const StoredObject& object : found)
      objects.push_back({NameOf(object.path), object.bytes, object.changed});
    return objects;
  }
  Result<void> Delete(const std::string& name) override {
    LOCKSTEP_TRY(client_.Delete(Path(name)));
    const std::size_t slash = name.rfind('/');
    // Not the job's folder itself, into which other ranks may write.
    return slash == std::string::npos ? Result<void>()
                                      : client_.DeleteEmptyFolder(Path(name.substr(0, slash)));
  }

  Result<int> AbortUploads(const IsOrphan& is_orphan) override {
    if (!s3_) return 0;
    LOCKSTEP_TRY(const S3Settings s3, storage::WithKeys(*s3_));
    LOCKSTEP_TRY(const auto uploads, storage::ListUploads(s3, Path("")));
    int aborted = 0;
    for (const storage::UnfinishedUpload& upload : uploads) {
      if (!is_orphan(NameOf(upload.path))) continue;
      LOCKSTEP_TRY(storage::AbortUpload(s3, upload));
      ++aborted;
    }
    return aborted;
  }

  [[nodiscard]] std::string UriOf(const std::string& name) const override { return uri_ + "/" + name; }

 private:
  [[nodiscard]] std::string Path(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] std::string NameOf(const std::string& path) const { return path.substr(path_.size() + 1); }

  StoreClient client_;
  const std::string uri_;
  const std::string path_;
  const std::optional<S3Settings> s3_;
};

// By default the SDK sends a checksum after each body, which makes it a chunked HTTP body whose last chunk
// ("0") is sent in a separate packet. Some servers (versitygw with keep-alive) answer before they read that
// chunk and then parse it as the next request, which fails with 400. Uploads lose nothing, because a
// checkpoint is verified by its manifest's SHA-256. For AWS the default is kept, because buckets with object
// lock require it, and a value set by the user is kept, too. Arrow exposes no other way to set this option.
// The process's first setenv keeps the old environment array, so threads that read the environment meanwhile
// are safe; later calls change nothing.
void LeaveOutTrailingChecksums() {
  (void)setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required",
               /*overwrite=*/0);
}

storage::StoreUse UseOf(StoreUser user) {
  const bool is_job = user == StoreUser::kJob;
  return {.field = FieldOf(user), .secret_field = is_job ? "spec.checkpoint.secretRef" : ""};
}

// For a job, tries a client with short time limits first, so that configuration errors are found quickly.
template <typename MakeImpatient, typename Make>
Result<std::unique_ptr<ObjectStore>> OpenFor(StoreUser user, const std::string& uri, const std::string& path,
                                             MakeImpatient make_impatient, Make make,
                                             const std::optional<S3Settings>& s3 = std::nullopt) {
  if (user == StoreUser::kJob) {
    LOCKSTEP_TRY(StoreClient impatient, make_impatient());
    RemoteStore first(std::move(impatient), uri, path, s3);
    LOCKSTEP_TRY(CheckWritable(first));
  }
  LOCKSTEP_TRY(StoreClient client, make());
  return std::unique_ptr<ObjectStore>(std::make_unique<RemoteStore>(std::move(client), uri, path, s3));
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> OpenS3Store(const std::string& path, StoreUser user) {
  LOCKSTEP_TRY(const S3Settings settings, storage::S3SettingsFromEnvironment(UseOf(user), path));
  if (!settings.endpoint.empty()) LeaveOutTrailingChecksums();
  return OpenFor(
      user, "s3://" + path, path, [&] { return storage::MakeS3Client(settings, kWhenOpening); },
      [&] { return storage::MakeS3Client(settings, kWhenTraining); }, settings);
}

Result<std::unique_ptr<ObjectStore>> OpenGcsStore(const std::string& path, StoreUser user) {
  LOCKSTEP_TRY(const storage::GcsSettings settings, storage::GcsSettingsFromEnvironment(UseOf(user)));
  return OpenFor(
      user, "gs://" + path, path, [&] { return storage::MakeGcsClient(settings, kGcsWhenOpening); },
      [&] { return storage::MakeGcsClient(settings, kGcsWhenTraining); });
}

Result<std::unique_ptr<ObjectStore>> OpenAzureStore(const std::string& place, StoreUser user) {
  LOCKSTEP_TRY(const storage::AzureSettings settings,
               storage::AzureSettingsFromEnvironment(UseOf(user), place));
  const auto make = [&] { return storage::MakeAzureClient(settings); };
  return OpenFor(user, "abfs://" + place, settings.path, make, make);
}

}  // namespace lockstep::checkpoint
