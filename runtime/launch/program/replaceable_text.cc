#include "runtime/launch/program/replaceable_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/witness/page.h"

namespace lockstep::launch {

Result<void> ReplaceableText::Set(std::string_view text) {
  LOCKSTEP_TRY(Fd file, witness::MakeMemoryFile("lockstep-text", text));
  if (!file_.valid()) {
    file_ = std::move(file);
    return {};
  }
  // The path under /proc has the other file at once.
  if (::dup3(file.get(), file_.get(), O_CLOEXEC) < 0)
    return Error{ErrorCode::kInternal, std::string("dup3: ") + std::strerror(errno)};
  return {};
}

std::string ReplaceableText::path() const { return file_.valid() ? witness::PathOf(file_) : ""; }

}  // namespace lockstep::launch
