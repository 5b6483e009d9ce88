#pragma once
// A debug option: what each rank contributed to which step, and which steps it committed, as JSON lines. Of
// each step the highest round with a commit counts, and of that round all contributions; together they must
// be the data plan. Step thread. A line that cannot be written ends the process: a ledger with a gap proves
// nothing.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/file.h"

namespace lockstep::train {

class SampleLedger {
 public:
  // Writes below `folder`; an empty folder: writes nothing. `process` names the pod or process in the file's
  // name.
  SampleLedger(std::string folder, std::string process, const Clock& clock);

  void EnterRound(int64_t round, int rank);
  // Before the step's gradients are reduced.
  void Contribute(int64_t step, const std::vector<int64_t>& ids);
  // After the optimizer has applied them; with the wall time, so that the pause after a fault can be read
  // off.
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
