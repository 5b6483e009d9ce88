// Replaces remote_store.cc if Lockstep is built without Arrow (LOCKSTEP_CORE_ONLY).

#include "runtime/checkpoint/remote_store.h"

namespace lockstep::checkpoint {
namespace {

Error LeftOut(const std::string& uri, StoreUser user) {
  return {ErrorCode::kUnsupported,
          FieldOf(user) + ": \"" + uri + "\": this build has no object stores; use file:///folder"};
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> OpenS3Store(const std::string& path, StoreUser user) {
  return LeftOut("s3://" + path, user);
}

Result<std::unique_ptr<ObjectStore>> OpenGcsStore(const std::string& path, StoreUser user) {
  return LeftOut("gs://" + path, user);
}

Result<std::unique_ptr<ObjectStore>> OpenAzureStore(const std::string& place, StoreUser user) {
  return LeftOut("abfs://" + place, user);
}

}  // namespace lockstep::checkpoint
