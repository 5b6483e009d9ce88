#include "runtime/storage/s3_client.h"

#include <arrow/filesystem/s3fs.h>

#include <algorithm>
#include <utility>

#include "runtime/common/base/strings.h"
#include "runtime/storage/s3_credentials.h"

namespace lockstep::storage {
namespace {

namespace fs = arrow::fs;

constexpr double kConnectSeconds = 3;
constexpr int kAccessDenied = 15;  // Aws::Client::CoreErrors::ACCESS_DENIED

// Arrow reports every S3 failure as an IOError; its text is the only way to distinguish them, so only this
// function reads it. `path` is "bucket/object".
Error FromArrow(const arrow::Status& status, const S3Settings& settings, S3Credentials& credentials,
                const std::string& path) {
  const std::string& text = status.message();
  const std::string variables = settings.use.place_of_variables();
  const std::string what = settings.use.field + ": s3://" + path + ": ";
  if (ContainsAny(text, {"NO_SUCH_BUCKET", "NoSuchBucket"})) {
    return {ErrorCode::kNotFound, settings.use.field + ": bucket \"" + path.substr(0, path.find('/')) +
                                      "\" does not exist; create it, or correct the name"};
  }
  Error away{ErrorCode::kUnavailable,
             what + "no valid credentials at this time from " + credentials.source() + " (" + text + ")"};
  // A HEAD has no body with an error code: only the status is known then.
  const std::string_view bodyless_400 = "(HTTP status 400) during HeadObject";
  if (!credentials.are_given() && ContainsAny(text, {"EXPIRED_TOKEN", "ExpiredToken", bodyless_400}))
    return away;
  if (ContainsAny(text, {"Looks like the configured region", "HTTP status 301", "PERMANENT_REDIRECT",
                         "AuthorizationHeaderMalformed", bodyless_400})) {
    return {ErrorCode::kInvalidArgument, what + "refused in the region " + settings.region +
                                             "; set AWS_REGION in " + variables +
                                             " to the bucket's region (" + text + ")"};
  }
  if (ContainsAny(text, {"HTTP status 403", "HTTP status 401", "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID",
                         "InvalidAccessKeyId", "SIGNATURE_DOES_NOT_MATCH", "INVALID_CLIENT_TOKEN_ID",
                         "EXPIRED_TOKEN", "ExpiredToken", "UserNotFound"})) {
    if (credentials.AreAway()) return away;
    const std::string suspect =
        credentials.are_given()
            ? "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in " + variables + ", and their rights"
            : "the rights of the identity from " + credentials.source();
    return {ErrorCode::kForbidden, what + "access denied; check " + suspect + " (" + text + ")"};
  }
  if (ContainsAny(text, {"HTTP status 404", "Path does not exist", "NO_SUCH_KEY", "RESOURCE_NOT_FOUND"})) {
    return {ErrorCode::kNotFound, what + "not found (" + text + ")"};
  }
  // The store keeps a checksum of each object, which the SDK verifies.
  if (ContainsAny(text, {"Response checksums mismatch"})) {
    return {ErrorCode::kDataLoss, what + "damaged in the object store (" + text + ")"};
  }
  if (ContainsAny(text, {"SSL peer certificate"})) {
    return {ErrorCode::kInvalidArgument,
            what + "the server's certificate is not trusted; set AWS_CA_BUNDLE in " + variables +
                " to a PEM file of its authority (" + text + ")"};
  }
  return {ErrorCode::kUnavailable, what + "no answer from the object store; check AWS_ENDPOINT_URL in " +
                                       variables + ", and the network (" + text + ")"};
}

// Arrow's S3 module must be initialised once and finalised before the process ends. The finalisation uses
// statics that Arrow creates with the first client; one created here is older than this object, so they
// outlive it.
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
    anonymous.region = kDefaultRegion;  // otherwise Arrow asks the machine's metadata service for one
    started_ = fs::S3FileSystem::Make(anonymous).status();
  }
  ~S3Library() { (void)fs::FinalizeS3(); }

  arrow::Status started_;
};

// A conflict of concurrent requests, which S3 asks to send again. The last text comes from servers on a file
// system when an object is put into a folder that is being removed.
bool IsConflict(const std::string& text) {
  return ContainsAny(text, {"OperationAborted", "ConditionalRequestConflict", "ExistingObjectIsDirectory"});
}

class BoundedRetries final : public fs::S3RetryStrategy {
 public:
  BoundedRetries(const S3Patience& patience, std::shared_ptr<S3Credentials> credentials)
      : patience_(patience), credentials_(std::move(credentials)) {}
  bool ShouldRetry(const AWSErrorDetail& error, int64_t attempted_retries) override {
    // A request that lacked keys is sent once more as soon as there are any: if that is denied, the rights are
    // missing.
    if (error.error_type == kAccessDenied) return attempted_retries == 0 && credentials_->HaveComeBack();
    const bool may_help = error.should_retry || IsConflict(error.exception_name + error.message);
    return may_help && attempted_retries < patience_.retries &&
           Seconds(clock_.Steady() - start_) < patience_.retry_window;
  }
  int64_t CalculateDelayBeforeNextRetry(const AWSErrorDetail&, int64_t attempted_retries) override {
    return int64_t{200} << std::min<int64_t>(attempted_retries, 5);  // milliseconds
  }

 private:
  const S3Patience patience_;
  const std::shared_ptr<S3Credentials> credentials_;
  const SystemClock clock_;
  const SteadyTime start_ = clock_.Steady();
};

arrow::Result<fs::S3Options> OptionsOf(const S3Settings& settings, const S3Patience& patience,
                                       const std::shared_ptr<S3Credentials>& credentials) {
  fs::S3Options options = credentials->options();
  if (!settings.proxy.empty()) {
    ARROW_ASSIGN_OR_RAISE(options.proxy_options, fs::S3ProxyOptions::FromUri(settings.proxy));
  }
  options.scheme = settings.scheme;
  options.endpoint_override = settings.endpoint;
  options.region = settings.region;
  options.force_virtual_addressing = settings.addressing == Addressing::kVirtual;
  // Without an override the SDK reads the endpoint variable without the prefix, which belongs to another
  // store, and does not support paths in it.
  if (settings.endpoint.empty() &&
      (!settings.use.variable_prefix.empty() || settings.addressing == Addressing::kPath)) {
    options.endpoint_override = AwsHost(settings.region);
  }
  options.tls_ca_file_path = settings.ca_file;
  options.connect_timeout = kConnectSeconds;
  options.request_timeout = patience.silence_seconds;
  options.retry_strategy = std::make_shared<BoundedRetries>(patience, credentials);
  // Sends small objects in one request; otherwise each Put begins a multipart upload.
  options.allow_delayed_open = true;
  return options;
}

}  // namespace

Result<StoreClient> MakeS3Client(const S3Settings& settings, const S3Patience& patience) {
  LOCKSTEP_TRY(S3Library::Start());
  LOCKSTEP_TRY(const std::shared_ptr<S3Credentials> credentials, S3Credentials::Find(settings));
  const auto to_error = [settings, credentials](const arrow::Status& status, const std::string& path) {
    return FromArrow(status, settings, *credentials, path);
  };
  const auto options = OptionsOf(settings, patience, credentials);
  if (!options.ok()) {
    return Error{ErrorCode::kInvalidArgument,
                 settings.use.field + ": s3://" + settings.place +
                     ": http_proxy or https_proxy in the environment: " + options.status().message()};
  }
  const auto filesystem = fs::S3FileSystem::Make(*options);
  if (!filesystem.ok()) return to_error(filesystem.status(), "");
  return StoreClient(*filesystem, to_error, Traces::kNone, Sending::kInBackground);
}

Result<S3Settings> WithKeys(S3Settings settings) {
  LOCKSTEP_TRY(S3Library::Start());
  LOCKSTEP_TRY(const std::shared_ptr<S3Credentials> credentials, S3Credentials::Find(settings));
  return credentials->Complete(std::move(settings));
}

}  // namespace lockstep::storage
