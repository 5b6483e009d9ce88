#pragma once
// A text in memory that other processes read as a file, at a path that stays the same when the text is replaced. A
// reader sees the old text or the new one, never a part. It needs no folder that can be written, so it works in
// every image. One thread; the path is valid while this object is.

#include <string>
#include <string_view>

#include "runtime/common/base/file.h"
#include "runtime/common/base/result.h"

namespace lockstep::launch {

class ReplaceableText {
 public:
  [[nodiscard]] Result<void> Set(std::string_view text);
  // Empty before the first text.
  [[nodiscard]] std::string path() const;

 private:
  Fd file_;
};

}  // namespace lockstep::launch
