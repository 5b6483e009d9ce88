#include "runtime/storage/gcs_client.h"

#include <arrow/filesystem/gcsfs.h>

#include "runtime/common/base/strings.h"

namespace lockstep::storage {
namespace {

namespace fs = arrow::fs;

// The text contains the code of Google's client, which is the only way to distinguish failures. `path` is
// "bucket/object".
Error FromArrow(const arrow::Status& status, const GcsSettings& settings, const std::string& path) {
  const std::string text = status.ToString();
  const std::string variables = settings.use.place_of_variables();
  const std::string what = settings.use.field + ": gs://" + path + ": ";
  if (ContainsAny(text, {"(NOT_FOUND", "Path does not exist"})) {
    // Writing an object needs nothing but its bucket.
    if (ContainsAny(text, {"function=CreateResumableUpload", "function=InsertObject"})) {
      return {ErrorCode::kNotFound, settings.use.field + ": bucket \"" + path.substr(0, path.find('/')) +
                                        "\" does not exist; create it, or correct the name"};
    }
    return {ErrorCode::kNotFound, what + "not found (" + text + ")"};
  }
  if (ContainsAny(text, {"(PERMISSION_DENIED", "(UNAUTHENTICATED"})) {
    return {ErrorCode::kForbidden, what + "access denied; check GOOGLE_CREDENTIALS in " + variables +
                                       ", or the pod's workload identity, and its rights (" + text + ")"};
  }
  // The store keeps a checksum of each object, which Google's client verifies.
  if (ContainsAny(text, {"(DATA_LOSS"}))
    return {ErrorCode::kDataLoss, what + "damaged in the object store (" + text + ")"};
  if (ContainsAny(text, {"(INVALID_ARGUMENT"}))
    return {ErrorCode::kInvalidArgument, what + "refused (" + text + ")"};
  return {ErrorCode::kUnavailable, what + "no answer from the object store; check the credentials in " +
                                       variables + ", and the network (" + text + ")"};
}

fs::GcsOptions OptionsOf(const GcsSettings& settings, Seconds retry_window) {
  fs::GcsOptions options = settings.is_anonymous ? fs::GcsOptions::Anonymous()
                           : settings.key.empty()
                               ? fs::GcsOptions::Defaults()
                               : fs::GcsOptions::FromServiceAccountCredentials(settings.key);
  options.scheme = settings.scheme;
  options.endpoint_override = settings.endpoint;
  options.retry_limit_seconds = retry_window.count();
  return options;
}

}  // namespace

Result<StoreClient> MakeGcsClient(const GcsSettings& settings, Seconds retry_window) {
  const auto to_error = [settings](const arrow::Status& status, const std::string& path) {
    return FromArrow(status, settings, path);
  };
  const auto filesystem = fs::GcsFileSystem::Make(OptionsOf(settings, retry_window));
  if (!filesystem.ok()) return to_error(filesystem.status(), "");
  return StoreClient(*filesystem, to_error);
}

}  // namespace lockstep::storage
