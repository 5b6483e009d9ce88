#include "runtime/storage/store_client.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>
#include <exception>
#include <typeinfo>
#include <utility>

namespace lockstep::storage {
namespace {

namespace fs = arrow::fs;

std::string TimeText(fs::TimePoint time) { return std::to_string(time.time_since_epoch().count()); }

arrow::Status NotThere(const std::string& path) {
  return arrow::Status::IOError("Path does not exist '", path, "'");
}

// Azure's client throws if it has no credentials, and Arrow does not catch that everywhere.
template <typename Operation>
arrow::Status StatusOf(Operation operation) {
  try {
    return operation();
  } catch (const std::exception& exception) {
    return arrow::Status::UnknownError(typeid(exception).name(), ": ", exception.what());
  }
}

}  // namespace

bool SendWindow::Fill(int64_t bytes) {
  given_ += bytes;
  if (given_ < size_) return false;
  given_ = 0;
  return true;
}

void SendWindow::Waited(Seconds time) {
  if (time < Seconds(1)) size_ = std::min(2 * size_, kMost);
  if (time > Seconds(4)) size_ = std::max(size_ / 2, kPart);
}

StoreClient::StoreClient(std::shared_ptr<fs::FileSystem> filesystem, ToError to_error, Traces traces,
                         Sending sending)
    : filesystem_(std::move(filesystem)),
      to_error_(std::move(to_error)),
      traces_(traces),
      sending_(sending) {}

Result<void> StoreClient::Put(const std::string& path, std::string_view content) {
  return PutPaced(path, content, static_cast<int64_t>(content.size()),
                  [](int64_t) { return Result<void>(); });
}

Result<void> StoreClient::PutPaced(const std::string& path, std::string_view content, int64_t piece,
                                   const Pace& pace) {
  std::shared_ptr<arrow::io::OutputStream> stream;
  Result<void> may;
  SendWindow window;
  const SystemClock clock;
  const arrow::Status status = StatusOf([&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(stream, filesystem_->OpenOutputStream(path));
    const auto size = static_cast<int64_t>(content.size());
    for (int64_t begin = 0; begin < size; begin += piece) {
      const int64_t bytes = std::min(piece, size - begin);
      may = pace(bytes);
      if (!may.ok()) return arrow::Status::Cancelled(path);
      ARROW_RETURN_NOT_OK(stream->Write(content.data() + begin, bytes));
      if (sending_ == Sending::kWhileWriting || !window.Fill(bytes)) continue;
      const SteadyTime start = clock.Steady();
      ARROW_RETURN_NOT_OK(stream->Flush());
      window.Waited(clock.Steady() - start);
    }
    return stream->Close();
  });
  if (status.ok()) return {};
  if (stream != nullptr) (void)stream->Abort();  // otherwise its destructor tries everything again
  return may.ok() ? Result<void>(to_error_(status, path)) : may;
}

Result<std::string> StoreClient::Get(const std::string& path) {
  std::string content;
  const arrow::Status status = StatusOf([&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto file, filesystem_->OpenInputFile(path));
    ARROW_ASSIGN_OR_RAISE(const int64_t size, file->GetSize());
    if (size == 0 && traces_ == Traces::kEmptyOnes) return NotThere(path);
    content.resize(static_cast<std::size_t>(size));
    ARROW_ASSIGN_OR_RAISE(const int64_t got, file->ReadAt(0, size, content.data()));
    return got == size ? arrow::Status::OK() : arrow::Status::IOError("short read of ", path);
  });
  if (!status.ok()) return to_error_(status, path);
  return content;
}

Result<StoredObject> StoreClient::Find(const std::string& path) {
  StoredObject object{.path = path};
  const arrow::Status status = StatusOf([&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto file, filesystem_->OpenInputFile(path));
    ARROW_ASSIGN_OR_RAISE(object.bytes, file->GetSize());
    if (object.bytes == 0 && traces_ == Traces::kEmptyOnes) return NotThere(path);
    ARROW_ASSIGN_OR_RAISE(const auto metadata, file->ReadMetadata());
    if (metadata == nullptr) return arrow::Status::OK();
    // Google's, then S3's and Azure's. Files that were copied into an S3 server's folder without the server
    // have none of these.
    for (const char* key : {"generation", "ETag", "Last-Modified"}) {
      if (object.version.empty()) object.version = metadata->Get(key).ValueOr("");
    }
    return arrow::Status::OK();
  });
  if (!status.ok()) return to_error_(status, path);
  return object;
}

Result<void> StoreClient::Read(const std::string& path, int64_t offset, std::span<char> target) {
  const auto bytes = static_cast<int64_t>(target.size());
  // The size is given, so that Arrow does not request it before every range.
  fs::FileInfo info(path, fs::FileType::File);
  info.set_size(offset + bytes);
  const arrow::Status status = StatusOf([&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto file, filesystem_->OpenInputFile(info));
    return file->ReadAt(offset, bytes, target.data()).status();
  });
  return status.ok() ? Result<void>() : Result<void>(to_error_(status, path));
}

Result<std::vector<StoredObject>> StoreClient::List(const std::string& folder) {
  fs::FileSelector selector;
  selector.base_dir = folder;
  selector.recursive = true;
  selector.allow_not_found = true;
  fs::FileInfoVector infos;
  const arrow::Status status = StatusOf([&] { return filesystem_->GetFileInfo(selector).Value(&infos); });
  if (!status.ok()) return to_error_(status, folder);
  std::vector<StoredObject> objects;
  for (const fs::FileInfo& info : infos) {
    if (!info.IsFile() || (info.size() == 0 && traces_ == Traces::kEmptyOnes)) continue;
    objects.push_back({info.path(), info.size(), TimeText(info.mtime()),
                       info.mtime() == fs::kNoTime ? std::nullopt : std::optional<WallTime>(info.mtime())});
  }
  std::sort(objects.begin(), objects.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return objects;
}

Result<void> StoreClient::Delete(const std::string& path) {
  const arrow::Status status = StatusOf([&] { return filesystem_->DeleteFile(path); });
  if (status.ok()) return {};
  const Error error = to_error_(status, path);
  return error.code == ErrorCode::kNotFound ? Result<void>() : Result<void>(error);
}

Result<void> StoreClient::DeleteEmptyFolder(const std::string& folder) {
  if (traces_ == Traces::kNone) return {};
  fs::FileSelector selector;
  selector.base_dir = folder;
  selector.allow_not_found = true;
  const arrow::Status status = StatusOf([&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto infos, filesystem_->GetFileInfo(selector));
    return infos.empty() ? filesystem_->DeleteDir(folder) : arrow::Status::OK();
  });
  return status.ok() ? Result<void>() : Result<void>(to_error_(status, folder));
}

}  // namespace lockstep::storage
