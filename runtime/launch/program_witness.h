#pragma once
// The witness of the program that `lockstep program` runs (runtime/witness): gives each start of it a page of its own,
// and reports what the page says. A program that nothing observes (not Python, another user, an interpreter that
// ignores PYTHONPATH) reports no steps. One thread.

#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/file.h"
#include "runtime/witness/observer.h"
#include "runtime/witness/page.h"

namespace lockstep::launch {

class ProgramWitness {
 public:
  // Before the program starts; adds to its environment, in which `PYTHONPATH` of this process is kept.
  // Logs why there is no witness, if there is none.
  void Begin(int64_t round, std::vector<std::string>& environment);
  // What is new.
  [[nodiscard]] std::vector<protocol::FromRank> Observe(SteadyTime now);
  // Posted by the program's framework.
  void Take(const witness::TrainerStatus& status);
  // The answer to a Ping; none for a program that is stopped.
  [[nodiscard]] std::optional<protocol::Pong> Answer() const;
  [[nodiscard]] bool is_present() const { return page_.has_value(); }

 private:
  [[nodiscard]] Result<void> MakeFiles();

  Fd archive_;
  std::optional<witness::Page> page_;
  std::optional<witness::Observer> observer_;
  bool has_failed_ = false;  // which was logged
};

}  // namespace lockstep::launch
