#include "runtime/storage/s3_client.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>
#include <utility>

namespace lockstep::storage {
namespace {

namespace fs = arrow::fs;

constexpr double kConnectSeconds = 3;

bool Mentions(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string::npos; });
}

// Arrow reports every S3 failure as an IOError; its text is the only place that tells them apart, so this one
// function reads it. `path` is "bucket/object".
Error FromArrow(const arrow::Status& status, const S3Settings& settings, const std::string& path) {
  const std::string& text = status.message();
  const std::string variables = PlaceOfVariables(settings.use);
  const std::string what = settings.use.field + ": s3://" + path + ": ";
  if (Mentions(text, {"NO_SUCH_BUCKET", "NoSuchBucket"})) {
    return {ErrorCode::kNotFound, settings.use.field + ": bucket \"" + path.substr(0, path.find('/')) +
                                      "\" does not exist; create it, or correct the name"};
  }
  // A HEAD has no body to say it in: then the status is all that is known.
  if (Mentions(text, {"Looks like the configured region", "HTTP status 301", "PERMANENT_REDIRECT",
                      "AuthorizationHeaderMalformed", "(HTTP status 400) during HeadObject"})) {
    return {ErrorCode::kInvalidArgument, what + "refused in the region " + settings.region +
                                             "; set AWS_REGION in " + variables +
                                             " to the bucket's region (" + text + ")"};
  }
  if (Mentions(text, {"HTTP status 403", "HTTP status 401", "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID",
                      "InvalidAccessKeyId", "SIGNATURE_DOES_NOT_MATCH", "INVALID_CLIENT_TOKEN_ID",
                      "EXPIRED_TOKEN", "ExpiredToken", "UserNotFound"})) {
    return {ErrorCode::kForbidden,
            what + "access denied; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in " + variables +
                ", and their rights (" + text + ")"};
  }
  if (Mentions(text, {"HTTP status 404", "Path does not exist", "NO_SUCH_KEY", "RESOURCE_NOT_FOUND"})) {
    return {ErrorCode::kNotFound, what + "not found (" + text + ")"};
  }
  // The store keeps a checksum of each object, which the SDK compares.
  if (Mentions(text, {"Response checksums mismatch"})) {
    return {ErrorCode::kDataLoss, what + "damaged in the object store (" + text + ")"};
  }
  return {ErrorCode::kUnavailable, what + "no answer from the object store; check AWS_ENDPOINT_URL in " +
                                       variables + ", and the network (" + text + ")"};
}

// Arrow wants its S3 part started once and finished before the process ends. The finish uses statics that
// Arrow makes with the first client; one made here is older than this object, so they outlive it.
class S3Library {
 public:
  static Result<void> Start() {
    static const S3Library library;
    return library.started_.ok() ? Result<void>() : Error{ErrorCode::kInternal, library.started_.ToString()};
  }

 private:
  S3Library() {
    fs::S3GlobalOptions options = fs::S3GlobalOptions::Defaults();
    options.log_level = fs::S3LogLevel::Off;
    started_ = fs::InitializeS3(options);
    if (!started_.ok()) return;
    fs::S3Options anonymous = fs::S3Options::Anonymous();
    anonymous.region = kDefaultRegion;  // or Arrow asks the machine's metadata service for one
    started_ = fs::S3FileSystem::Make(anonymous).status();
  }
  ~S3Library() { (void)fs::FinalizeS3(); }

  arrow::Status started_;
};

class BoundedRetries final : public fs::S3RetryStrategy {
 public:
  explicit BoundedRetries(const S3Patience& patience) : patience_(patience) {}
  bool ShouldRetry(const AWSErrorDetail& error, int64_t attempted_retries) override {
    return error.should_retry && attempted_retries < patience_.retries &&
           Seconds(clock_.Steady() - start_) < patience_.retry_window;
  }
  int64_t CalculateDelayBeforeNextRetry(const AWSErrorDetail&, int64_t attempted_retries) override {
    return int64_t{200} << std::min<int64_t>(attempted_retries, 5);  // milliseconds
  }

 private:
  const S3Patience patience_;
  const SystemClock clock_;
  const SteadyTime start_ = clock_.Steady();
};

fs::S3Options OptionsOf(const S3Settings& settings, const S3Patience& patience) {
  fs::S3Options options;
  if (settings.access_key.empty()) {
    options.ConfigureAssumeRoleWithWebIdentityCredentials();
  } else {
    options.ConfigureAccessKey(settings.access_key, settings.secret_key, settings.session_token);
  }
  options.scheme = settings.scheme;
  options.endpoint_override = settings.endpoint;
  options.region = settings.region;
  // Without an override the SDK reads the endpoint without the prefix, which is another store's.
  if (settings.endpoint.empty() && !settings.use.variable_prefix.empty()) {
    const bool is_china = settings.region.starts_with("cn-");
    options.endpoint_override = "s3." + settings.region + (is_china ? ".amazonaws.com.cn" : ".amazonaws.com");
    options.force_virtual_addressing = true;
  }
  options.connect_timeout = kConnectSeconds;
  options.request_timeout = patience.silence_seconds;
  options.retry_strategy = std::make_shared<BoundedRetries>(patience);
  // Small objects in one request; without it each Put begins a multipart upload.
  options.allow_delayed_open = true;
  return options;
}

std::string TimeText(fs::TimePoint time) { return std::to_string(time.time_since_epoch().count()); }

}  // namespace

struct S3Client::State {
  const S3Settings settings;
  const std::shared_ptr<fs::S3FileSystem> filesystem;  // shared: Arrow makes it so

  [[nodiscard]] Error ErrorOf(const arrow::Status& status, const std::string& path) const {
    return FromArrow(status, settings, path);
  }
};

S3Client::S3Client(std::unique_ptr<State> state) : state_(std::move(state)) {}
S3Client::S3Client(S3Client&&) noexcept = default;
S3Client::~S3Client() = default;

Result<S3Client> S3Client::Make(const S3Settings& settings, const S3Patience& patience) {
  LOCKSTEP_TRY(S3Library::Start());
  const auto filesystem = fs::S3FileSystem::Make(OptionsOf(settings, patience));
  if (!filesystem.ok()) return FromArrow(filesystem.status(), settings, "");
  return S3Client(std::unique_ptr<State>(new State{settings, *filesystem}));
}

Result<void> S3Client::Put(const std::string& path, std::string_view content) {
  auto stream = state_->filesystem->OpenOutputStream(path);
  if (!stream.ok()) return state_->ErrorOf(stream.status(), path);
  arrow::Status status = (*stream)->Write(content.data(), static_cast<int64_t>(content.size()));
  if (status.ok()) status = (*stream)->Close();
  if (status.ok()) return {};
  (void)(*stream)->Abort();  // or its destructor tries everything once more
  return state_->ErrorOf(status, path);
}

Result<std::string> S3Client::Get(const std::string& path) {
  std::string content;
  const auto status = [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto file, state_->filesystem->OpenInputFile(path));
    ARROW_ASSIGN_OR_RAISE(const int64_t size, file->GetSize());
    content.resize(static_cast<std::size_t>(size));
    ARROW_ASSIGN_OR_RAISE(const int64_t got, file->ReadAt(0, size, content.data()));
    return got == size ? arrow::Status::OK() : arrow::Status::IOError("short read of ", path);
  }();
  if (!status.ok()) return state_->ErrorOf(status, path);
  return content;
}

Result<S3Object> S3Client::Find(const std::string& path) {
  S3Object object{.path = path};
  const auto status = [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto file, state_->filesystem->OpenInputFile(path));
    ARROW_ASSIGN_OR_RAISE(object.bytes, file->GetSize());
    ARROW_ASSIGN_OR_RAISE(const auto metadata, file->ReadMetadata());
    if (metadata == nullptr) return arrow::Status::OK();
    object.version = metadata->Get("ETag").ValueOr("");
    // Files that somebody put below a server without its knowledge have none.
    if (object.version.empty()) object.version = metadata->Get("Last-Modified").ValueOr("");
    return arrow::Status::OK();
  }();
  if (!status.ok()) return state_->ErrorOf(status, path);
  return object;
}

Result<void> S3Client::Read(const std::string& path, int64_t offset, std::span<char> target) {
  const auto bytes = static_cast<int64_t>(target.size());
  // Its size is given, so that Arrow does not ask for it before every range.
  fs::FileInfo info(path, fs::FileType::File);
  info.set_size(offset + bytes);
  const auto status = [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto file, state_->filesystem->OpenInputFile(info));
    return file->ReadAt(offset, bytes, target.data()).status();
  }();
  return status.ok() ? Result<void>() : Result<void>(state_->ErrorOf(status, path));
}

Result<std::vector<S3Object>> S3Client::List(const std::string& folder) {
  fs::FileSelector selector;
  selector.base_dir = folder;
  selector.recursive = true;
  selector.allow_not_found = true;
  const auto infos = state_->filesystem->GetFileInfo(selector);
  if (!infos.ok()) return state_->ErrorOf(infos.status(), folder);
  std::vector<S3Object> objects;
  for (const fs::FileInfo& info : *infos) {
    if (info.IsFile()) objects.push_back({info.path(), info.size(), TimeText(info.mtime())});
  }
  std::sort(objects.begin(), objects.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return objects;
}

Result<void> S3Client::Delete(const std::string& path) {
  const arrow::Status status = state_->filesystem->DeleteFile(path);
  if (status.ok()) return {};
  const Error error = state_->ErrorOf(status, path);
  return error.code == ErrorCode::kNotFound ? Result<void>() : Result<void>(error);
}

}  // namespace lockstep::storage
