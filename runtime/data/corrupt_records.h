#pragma once
// Logs the corrupt records of a data set that are skipped: each once per process, however often it is drawn,
// and at most kMostNamed of them. The step counts them separately. Any thread.

#include <cstdint>
#include <set>
#include <string>

#include "runtime/common/base/mutex.h"

namespace lockstep::data {

class CorruptRecords {
 public:
  static constexpr std::size_t kMostNamed = 100;

  // `where` is the file, with the line or offset if it holds several records.
  void Report(int64_t id, const std::string& where, const std::string& problem);

 private:
  Mutex mutex_;
  std::set<int64_t> named_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::data
