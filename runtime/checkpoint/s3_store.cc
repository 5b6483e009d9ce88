#include "runtime/checkpoint/s3_store.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/file.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = arrow::fs;

constexpr double kConnectSeconds = 3;
constexpr const char* kDefaultRegion = "us-east-1";

// How long one operation may take. A request ends `silence` after the last byte (curl measures an average, so
// it takes about 7 s longer).
struct Patience {
  double silence_seconds = 0;
  int64_t retries = 0;
  Seconds retry_window{};  // since the store was opened; no retry begins later
};
// 15 s at most, and yet a store that is just being restarted is waited for.
constexpr Patience kWhenOpening{.silence_seconds = 4, .retries = 5, .retry_window = Seconds(7)};
constexpr Patience kWhenTraining{.silence_seconds = 10, .retries = 3, .retry_window = Seconds::max()};

bool Mentions(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string::npos; });
}

// Arrow reports every S3 failure as an IOError; its text is the only place that tells them apart, so this one
// function reads it. `path` is "bucket/object".
Error FromArrow(const arrow::Status& status, const std::string& path) {
  const std::string& text = status.message();
  const std::string what = "spec.checkpoint.uri: s3://" + path + ": ";
  if (Mentions(text, {"NO_SUCH_BUCKET", "NoSuchBucket"})) {
    return {ErrorCode::kNotFound, "spec.checkpoint.uri: bucket \"" + path.substr(0, path.find('/')) +
                                      "\" does not exist; create it, or correct the name"};
  }
  if (Mentions(text, {"HTTP status 403", "HTTP status 401", "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID",
                      "InvalidAccessKeyId", "SIGNATURE_DOES_NOT_MATCH", "INVALID_CLIENT_TOKEN_ID",
                      "EXPIRED_TOKEN", "ExpiredToken", "UserNotFound"})) {
    return {ErrorCode::kForbidden,
            what +
                "access denied; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the "
                "Secret named by spec.checkpoint.secretRef, and their rights (" +
                text + ")"};
  }
  if (Mentions(text, {"HTTP status 404", "Path does not exist", "NO_SUCH_KEY", "RESOURCE_NOT_FOUND"})) {
    return {ErrorCode::kNotFound, what + "not found (" + text + ")"};
  }
  return {ErrorCode::kUnavailable,
          what +
              "no answer from the object store; check AWS_ENDPOINT_URL in the Secret named "
              "by spec.checkpoint.secretRef, and the network (" +
              text + ")"};
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
  explicit BoundedRetries(const Patience& patience) : patience_(patience) {}
  bool ShouldRetry(const AWSErrorDetail& error, int64_t attempted_retries) override {
    return error.should_retry && attempted_retries < patience_.retries &&
           Seconds(clock_.Steady() - start_) < patience_.retry_window;
  }
  int64_t CalculateDelayBeforeNextRetry(const AWSErrorDetail&, int64_t attempted_retries) override {
    return int64_t{200} << std::min<int64_t>(attempted_retries, 5);  // milliseconds
  }

 private:
  const Patience patience_;
  const SystemClock clock_;
  const SteadyTime start_ = clock_.Steady();
};

class S3Store final : public ObjectStore {
 public:
  S3Store(std::shared_ptr<fs::S3FileSystem> filesystem, std::string path)
      : filesystem_(std::move(filesystem)), path_(std::move(path)) {}

  Result<void> Put(const std::string& name, std::string_view content) override {
    auto stream = filesystem_->OpenOutputStream(Path(name));
    if (!stream.ok()) return FromArrow(stream.status(), Path(name));
    arrow::Status status = (*stream)->Write(content.data(), static_cast<int64_t>(content.size()));
    if (status.ok()) status = (*stream)->Close();
    if (status.ok()) return {};
    (void)(*stream)->Abort();  // or its destructor tries everything once more
    return FromArrow(status, Path(name));
  }

  Result<std::string> Get(const std::string& name) override {
    std::string content;
    const auto status = [&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(const auto file, filesystem_->OpenInputFile(Path(name)));
      ARROW_ASSIGN_OR_RAISE(const int64_t size, file->GetSize());
      content.resize(static_cast<std::size_t>(size));
      ARROW_ASSIGN_OR_RAISE(const int64_t got, file->ReadAt(0, size, content.data()));
      return got == size ? arrow::Status::OK() : arrow::Status::IOError("short read of ", name);
    }();
    if (!status.ok()) return FromArrow(status, Path(name));
    return content;
  }

  Result<std::vector<ObjectInfo>> List() override {
    fs::FileSelector selector;
    selector.base_dir = path_;
    selector.recursive = true;
    selector.allow_not_found = true;
    const auto infos = filesystem_->GetFileInfo(selector);
    if (!infos.ok()) return FromArrow(infos.status(), path_);
    std::vector<ObjectInfo> objects;
    for (const fs::FileInfo& info : *infos) {
      if (info.IsFile()) objects.push_back({info.path().substr(path_.size() + 1), info.size()});
    }
    std::sort(objects.begin(), objects.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return objects;
  }

  Result<void> Delete(const std::string& name) override {
    const arrow::Status status = filesystem_->DeleteFile(Path(name));
    if (status.ok()) return {};
    const Error error = FromArrow(status, Path(name));
    return error.code == ErrorCode::kNotFound ? Result<void>() : Result<void>(error);
  }

  [[nodiscard]] std::string UriOf(const std::string& name) const override { return "s3://" + Path(name); }

 private:
  [[nodiscard]] std::string Path(const std::string& name) const { return path_ + "/" + name; }

  const std::shared_ptr<fs::S3FileSystem> filesystem_;  // shared: Arrow makes it so
  const std::string path_;
};

Error BadEndpoint(const std::string& endpoint) {
  return {ErrorCode::kInvalidArgument,
          "AWS_ENDPOINT_URL in the Secret named by spec.checkpoint.secretRef: \"" + endpoint +
              "\" is no URL; write it as http://host:port or https://host:port"};
}

// By default the SDK sends a checksum after each body, which makes it an HTTP-chunked one whose last chunk
// ("0") is a packet of its own. Some servers (versitygw with keep-alive) answer before they read it and then
// take it for the next request, which fails with 400. Uploads lose nothing: a checkpoint is verified by its
// manifest's SHA-256. AWS itself keeps the default, which its locked buckets demand; a value that the user
// gave stays. The SDK knows no other way to say it that Arrow lets through. The process's first setenv leaves
// the old array in place, so threads that read the environment meanwhile are safe; later calls change
// nothing.
void LeaveOutTrailingChecksums() {
  (void)setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required",
               /*overwrite=*/0);
}

// Path-style addresses follow from an endpoint of one's own; without one it is AWS.
Result<void> SetEndpoint(fs::S3Options& options) {
  const std::string endpoint = EnvOr("AWS_ENDPOINT_URL_S3", EnvOr("AWS_ENDPOINT_URL", ""));
  if (endpoint.empty()) return {};
  const std::size_t scheme_end = endpoint.find("://");
  if (scheme_end == std::string::npos) return BadEndpoint(endpoint);
  options.scheme = endpoint.substr(0, scheme_end);
  options.endpoint_override = endpoint.substr(scheme_end + 3);
  while (options.endpoint_override.ends_with('/')) options.endpoint_override.pop_back();
  const bool is_http = options.scheme == "http" || options.scheme == "https";
  if (!is_http || options.endpoint_override.empty()) return BadEndpoint(endpoint);
  LeaveOutTrailingChecksums();
  return {};
}

// The pair of keys, or the token of a workload identity. Never the machine's metadata service: asking it
// takes seconds where there is none.
Result<void> SetCredentials(fs::S3Options& options, const std::string& path) {
  const std::string key = EnvOr("AWS_ACCESS_KEY_ID", "");
  const std::string secret = EnvOr("AWS_SECRET_ACCESS_KEY", "");
  if (!key.empty() && !secret.empty()) {
    options.ConfigureAccessKey(key, secret, EnvOr("AWS_SESSION_TOKEN", ""));
    return {};
  }
  if (key.empty() && !EnvOr("AWS_WEB_IDENTITY_TOKEN_FILE", "").empty()) {
    options.ConfigureAssumeRoleWithWebIdentityCredentials();
    return {};
  }
  const std::string lacks = !key.empty() ? "lacks AWS_SECRET_ACCESS_KEY" : "needs credentials";
  return Error{ErrorCode::kInvalidArgument,
               "spec.checkpoint.secretRef: s3://" + path + " " + lacks +
                   "; name a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"};
}

Result<fs::S3Options> OptionsFromEnvironment(const std::string& path, const Patience& patience) {
  fs::S3Options options;
  LOCKSTEP_TRY(SetCredentials(options, path));
  LOCKSTEP_TRY(SetEndpoint(options));
  options.region = EnvOr("AWS_REGION", EnvOr("AWS_DEFAULT_REGION", kDefaultRegion));
  options.connect_timeout = kConnectSeconds;
  options.request_timeout = patience.silence_seconds;
  options.retry_strategy = std::make_shared<BoundedRetries>(patience);
  // Small objects in one request; without it each Put begins a multipart upload.
  options.allow_delayed_open = true;
  return options;
}

Result<std::shared_ptr<fs::S3FileSystem>> Connect(const std::string& path, const Patience& patience) {
  LOCKSTEP_TRY(const fs::S3Options options, OptionsFromEnvironment(path, patience));
  const auto filesystem = fs::S3FileSystem::Make(options);
  if (!filesystem.ok()) return FromArrow(filesystem.status(), path);
  return *filesystem;
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> OpenS3Store(const std::string& path) {
  LOCKSTEP_TRY(S3Library::Start());
  LOCKSTEP_TRY(auto impatient, Connect(path, kWhenOpening));
  S3Store first(std::move(impatient), path);
  LOCKSTEP_TRY(CheckWritable(first));
  LOCKSTEP_TRY(auto filesystem, Connect(path, kWhenTraining));
  return std::unique_ptr<ObjectStore>(std::make_unique<S3Store>(std::move(filesystem), path));
}

}  // namespace lockstep::checkpoint
