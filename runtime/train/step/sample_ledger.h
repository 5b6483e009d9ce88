#pragma once
// A debug option: writes as JSON lines which samples each rank contributed to which step, and which steps it
// committed. For each step the highest round with a commit counts, with all contributions of that round;
// together they must equal the data plan. Step thread. A write error ends the process, because an incomplete
// ledger proves nothing.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/file.h"

namespace lockstep::train {

class SampleLedger {
 public:
  // Writes below `folder`, or nothing if it is empty. `process` is part of the file name.
  SampleLedger(std::string folder, std::string process, const Clock& clock);

  void EnterRound(int64_t round, int rank);
  // Called before the step's gradients are reduced.
  void Contribute(int64_t step, const std::vector<int64_t>& ids);
  // Called after the optimizer has applied them. Writes the wall time, so that the pause after a fault can be
  // measured.
  void Commit(int64_t step);
  [[nodiscard]] bool enabled() const { return !folder_.empty(); }

 private:
  void Write(const std::string& line) const;

  const std::string folder_;
  const std::string process_;
  const Clock& clock_;
  int64_t round_ = 0;
  int rank_ = 0;
  Fd file_;
};

}  // namespace lockstep::train
