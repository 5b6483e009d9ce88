#include "runtime/checkpoint/open_store.h"

#include <string_view>

#include "runtime/checkpoint/file_store.h"
#include "runtime/checkpoint/remote_store.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kFile = "file://";
constexpr std::string_view kS3 = "s3://";
constexpr std::string_view kGoogle = "gs://";
constexpr std::string_view kAzure = "abfs://";

Result<std::unique_ptr<ObjectStore>> Open(const std::string& uri, StoreUser user) {
  std::string path = uri;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.starts_with(kFile) && path.size() > kFile.size() && path[kFile.size()] == '/') {
    return OpenFileStore(path.substr(kFile.size()), user);
  }
  if (path.starts_with(kS3) && path.size() > kS3.size()) return OpenS3Store(path.substr(kS3.size()), user);
  if (path.starts_with(kGoogle) && path.size() > kGoogle.size())
    return OpenGcsStore(path.substr(kGoogle.size()), user);
  if (path.starts_with(kAzure) && path.size() > kAzure.size())
    return OpenAzureStore(path.substr(kAzure.size()), user);
  return Error{ErrorCode::kInvalidArgument,
               FieldOf(user) + ": \"" + uri +
                   "\" is neither s3://bucket/prefix nor gs://bucket/prefix nor "
                   "abfs://container@account.dfs.core.windows.net/prefix nor file:///folder"};
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> OpenObjectStore(const std::string& uri) {
  return Open(uri, StoreUser::kJob);
}

Result<std::unique_ptr<ObjectStore>> OpenForCommand(const std::string& uri) {
  return Open(uri, StoreUser::kCommand);
}

}  // namespace lockstep::checkpoint
