#pragma once
// A large file that is written in pieces under a temporary name in the same folder, so that a program that reads it
// sees all of it or nothing. One thread. The destructor removes what was not kept.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/common/base/file.h"
#include "runtime/common/base/result.h"

namespace lockstep::checkpoint_tool {

class NewFile {
 public:
  // kInvalidArgument, with what is wrong with the path.
  [[nodiscard]] static Result<NewFile> Make(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  ~NewFile();

  [[nodiscard]] Result<void> Append(std::string_view piece);
  // Adds float32 numbers to those that were written at this position. Both are little-endian.
  [[nodiscard]] Result<void> AddFloats(int64_t position, std::string_view numbers);
  [[nodiscard]] Result<void> Keep();  // once, last

 private:
  NewFile(std::string path, std::string temporary, Fd fd);

  std::string path_;
  std::string temporary_;  // empty: nothing to remove
  Fd fd_;
};

}  // namespace lockstep::checkpoint_tool
