#include "runtime/data/corrupt_records.h"

#include "runtime/common/base/log.h"

namespace lockstep::data {

void CorruptRecords::Report(int64_t id, const std::string& where, const std::string& problem) {
  std::size_t named = 0;
  {
    const MutexLock lock(mutex_);
    if (named_.size() == kMostNamed || !named_.insert(id).second) return;
    named = named_.size();
  }
  log::Warning("corrupt record skipped", {{"record", where}, {"problem", problem}});
  if (named == kMostNamed)
    log::Warning("further corrupt records are counted, but not named", {{"named", named}});
}

}  // namespace lockstep::data
