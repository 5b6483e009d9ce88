#include "runtime/checkpoint/s3_store.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>

#include <algorithm>
#include <utility>

#include "runtime/common/base/file.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = arrow::fs;

constexpr double kConnectSeconds = 3;
constexpr double kRequestSeconds = 10;
constexpr int kAttempts = 3;

bool Mentions(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string::npos; });
}

// Arrow reports every S3 failure as an IOError; its text is the only place that tells them apart, so this one
// function reads it.
Error FromArrow(const arrow::Status& status, const std::string& path) {
  const std::string& text = status.message();
  const std::string what = "spec.checkpoint.uri: s3://" + path + ": ";
  if (Mentions(text, {"HTTP status 404", "does not exist", "NoSuchBucket", "NO_SUCH_BUCKET",
                      "RESOURCE_NOT_FOUND"})) {
    return {ErrorCode::kNotFound, what + "not found; create the bucket, or correct its name (" + text + ")"};
  }
  if (Mentions(text, {"HTTP status 403", "HTTP status 401", "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID",
                      "SIGNATURE_DOES_NOT_MATCH", "INVALID_CLIENT_TOKEN_ID"})) {
    return {ErrorCode::kForbidden,
            what +
                "access denied; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the "
                "Secret named by spec.checkpoint.secretRef, and their rights (" +
                text + ")"};
  }
  return {ErrorCode::kUnavailable,
          what +
              "no answer from the object store; check AWS_ENDPOINT_URL in the Secret named "
              "by spec.checkpoint.secretRef, and the network (" +
              text + ")"};
}

// Arrow wants its S3 part started once and finished before the process ends.
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
  }
  ~S3Library() { (void)fs::FinalizeS3(); }

  arrow::Status started_;
};

class S3Store final : public ObjectStore {
 public:
  S3Store(std::shared_ptr<fs::S3FileSystem> filesystem, std::string path)
      : filesystem_(std::move(filesystem)), path_(std::move(path)) {}

  Result<void> Put(const std::string& name, std::string_view content) override {
    const auto status = [&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(const auto stream, filesystem_->OpenOutputStream(Path(name)));
      ARROW_RETURN_NOT_OK(stream->Write(content.data(), static_cast<int64_t>(content.size())));
      return stream->Close();
    }();
    return status.ok() ? Result<void>() : FromArrow(status, path_);
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

fs::S3Options OptionsFromEnvironment() {
  fs::S3Options options;
  options.ConfigureDefaultCredentials();
  options.connect_timeout = kConnectSeconds;
  options.request_timeout = kRequestSeconds;
  options.retry_strategy = fs::S3RetryStrategy::GetAwsStandardRetryStrategy(kAttempts);
  if (const std::string region = EnvOr("AWS_REGION", EnvOr("AWS_DEFAULT_REGION", "")); !region.empty()) {
    options.region = region;
  }
  const std::string endpoint = EnvOr("AWS_ENDPOINT_URL_S3", EnvOr("AWS_ENDPOINT_URL", ""));
  const std::size_t scheme_end = endpoint.find("://");
  if (scheme_end != std::string::npos) {
    options.scheme = endpoint.substr(0, scheme_end);
    options.endpoint_override = endpoint.substr(scheme_end + 3);
    while (options.endpoint_override.ends_with('/')) options.endpoint_override.pop_back();
  }
  return options;
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> OpenS3Store(const std::string& path) {
  LOCKSTEP_TRY(S3Library::Start());
  if (EnvOr("AWS_ACCESS_KEY_ID", "").empty() && EnvOr("AWS_WEB_IDENTITY_TOKEN_FILE", "").empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "spec.checkpoint.secretRef: s3://" + path +
                     " needs credentials; name a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"};
  }
  const auto filesystem = fs::S3FileSystem::Make(OptionsFromEnvironment());
  if (!filesystem.ok()) return FromArrow(filesystem.status(), path);
  const std::string bucket = path.substr(0, path.find('/'));
  const auto info = (*filesystem)->GetFileInfo(bucket);
  if (!info.ok()) return FromArrow(info.status(), path);
  if (info->type() == fs::FileType::NotFound) {
    return Error{ErrorCode::kNotFound, "spec.checkpoint.uri: bucket \"" + bucket +
                                           "\" does not exist; create it, or correct the name"};
  }
  return std::unique_ptr<ObjectStore>(std::make_unique<S3Store>(*filesystem, path));
}

}  // namespace lockstep::checkpoint
