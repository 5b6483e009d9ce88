#include "runtime/train/step/sample_ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "runtime/common/base/json.h"

namespace lockstep::train {

SampleLedger::SampleLedger(std::string folder, std::string process, const Clock& clock)
    : folder_(std::move(folder)), process_(std::move(process)), clock_(clock) {}

void SampleLedger::EnterRound(int64_t round, int rank) {
  if (!enabled()) return;
  round_ = round;
  rank_ = rank;
  const std::string path = folder_ + "/" + process_ + "-" + std::to_string(rank) + ".jsonl";
  file_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  LOCKSTEP_CHECK(file_.valid(), "LOCKSTEP_SAMPLE_LEDGER: " + path + " cannot be opened");
}

void SampleLedger::Contribute(int64_t step, const std::vector<int64_t>& ids) {
  if (!enabled()) return;
  Write(
      DumpJson({{"event", "contribute"}, {"round", round_}, {"step", step}, {"rank", rank_}, {"ids", ids}}));
}

void SampleLedger::Commit(int64_t step) {
  if (!enabled()) return;
  const double now = Seconds(clock_.Now().time_since_epoch()).count();
  Write(DumpJson({{"event", "commit"}, {"round", round_}, {"step", step}, {"rank", rank_}, {"time", now}}));
}

void SampleLedger::Write(const std::string& line) const {
  const std::string bytes = line + "\n";
  // One write per line, so that a killed process leaves only whole lines.
  LOCKSTEP_CHECK(::write(file_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
                 "the sample ledger cannot be written");
}

}  // namespace lockstep::train
