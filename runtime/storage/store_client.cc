#include "runtime/storage/store_client.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>
#include <utility>

namespace lockstep::storage {
namespace {

namespace fs = arrow::fs;

std::string TimeText(fs::TimePoint time) { return std::to_string(time.time_since_epoch().count()); }

}  // namespace

StoreClient::StoreClient(std::shared_ptr<fs::FileSystem> filesystem, ToError to_error)
    : filesystem_(std::move(filesystem)), to_error_(std::move(to_error)) {}

Result<void> StoreClient::Put(const std::string& path, std::string_view content) {
  auto stream = filesystem_->OpenOutputStream(path);
  if (!stream.ok()) return to_error_(stream.status(), path);
  arrow::Status status = (*stream)->Write(content.data(), static_cast<int64_t>(content.size()));
  if (status.ok()) status = (*stream)->Close();
  if (status.ok()) return {};
  (void)(*stream)->Abort();  // or its destructor tries everything once more
  return to_error_(status, path);
}

Result<std::string> StoreClient::Get(const std::string& path) {
  std::string content;
  const auto status = [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto file, filesystem_->OpenInputFile(path));
    ARROW_ASSIGN_OR_RAISE(const int64_t size, file->GetSize());
    content.resize(static_cast<std::size_t>(size));
    ARROW_ASSIGN_OR_RAISE(const int64_t got, file->ReadAt(0, size, content.data()));
    return got == size ? arrow::Status::OK() : arrow::Status::IOError("short read of ", path);
  }();
  if (!status.ok()) return to_error_(status, path);
  return content;
}

Result<StoredObject> StoreClient::Find(const std::string& path) {
  StoredObject object{.path = path};
  const auto status = [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto file, filesystem_->OpenInputFile(path));
    ARROW_ASSIGN_OR_RAISE(object.bytes, file->GetSize());
    ARROW_ASSIGN_OR_RAISE(const auto metadata, file->ReadMetadata());
    if (metadata == nullptr) return arrow::Status::OK();
    // Google's, then S3's; files that somebody put below an S3 server without its knowledge have none of
    // these.
    for (const char* key : {"generation", "ETag", "Last-Modified"}) {
      if (object.version.empty()) object.version = metadata->Get(key).ValueOr("");
    }
    return arrow::Status::OK();
  }();
  if (!status.ok()) return to_error_(status, path);
  return object;
}

Result<void> StoreClient::Read(const std::string& path, int64_t offset, std::span<char> target) {
  const auto bytes = static_cast<int64_t>(target.size());
  // Its size is given, so that Arrow does not ask for it before every range.
  fs::FileInfo info(path, fs::FileType::File);
  info.set_size(offset + bytes);
  const auto status = [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto file, filesystem_->OpenInputFile(info));
    return file->ReadAt(offset, bytes, target.data()).status();
  }();
  return status.ok() ? Result<void>() : Result<void>(to_error_(status, path));
}

Result<std::vector<StoredObject>> StoreClient::List(const std::string& folder) {
  fs::FileSelector selector;
  selector.base_dir = folder;
  selector.recursive = true;
  selector.allow_not_found = true;
  const auto infos = filesystem_->GetFileInfo(selector);
  if (!infos.ok()) return to_error_(infos.status(), folder);
  std::vector<StoredObject> objects;
  for (const fs::FileInfo& info : *infos) {
    if (info.IsFile()) objects.push_back({info.path(), info.size(), TimeText(info.mtime())});
  }
  std::sort(objects.begin(), objects.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return objects;
}

Result<void> StoreClient::Delete(const std::string& path) {
  const arrow::Status status = filesystem_->DeleteFile(path);
  if (status.ok()) return {};
  const Error error = to_error_(status, path);
  return error.code == ErrorCode::kNotFound ? Result<void>() : Result<void>(error);
}

}  // namespace lockstep::storage
