#pragma once
// Tells of the corrupt records of a data set that are skipped: each once in this process, however often it is
// drawn, and no more of them than anybody reads. How many there were is counted elsewhere, by the step. Any
// thread.

#include <cstdint>
#include <set>
#include <string>

#include "runtime/common/base/mutex.h"

namespace lockstep::data {

class CorruptRecords {
 public:
  static constexpr std::size_t kMostNamed = 100;

  // `where` is the file, with the line or offset where it holds more records than one.
  void Met(int64_t id, const std::string& where, const std::string& problem);

 private:
  Mutex mutex_;
  std::set<int64_t> named_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::data
