#include "runtime/common/base/open_files.h"

#include <cerrno>
#include <cstring>

#include "runtime/common/base/log.h"

namespace lockstep {
namespace {

rlimit CurrentLimit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

}  // namespace

std::size_t RaiseOpenFileLimit() {
  rlimit raised = OpenFileLimitAtStart();
  raised.rlim_cur = raised.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &raised) != 0)
    log::Warning("cannot raise the limit of open files", {{"error", std::strerror(errno)}});
  return OpenFileLimit();
}

std::size_t OpenFileLimit() { return CurrentLimit().rlim_cur; }

const rlimit& OpenFileLimitAtStart() {
  static const rlimit at_start = CurrentLimit();
  return at_start;
}

}  // namespace lockstep
