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
  // The same for a program that was started earlier, with this page.
  void Begin(int64_t round, witness::Page page);
  // The page of an interpreter that starts now, and becomes the program in a later round; adds to its environment.
  [[nodiscard]] Result<witness::Page> Prepare(std::vector<std::string>& environment);
  // What the page says.
  [[nodiscard]] witness::Observation Read() const {
    return page_.has_value() ? page_->Read() : witness::Observation{};
  }
  // What is new.
  [[nodiscard]] std::vector<protocol::FromRank> Observe(SteadyTime now);
  // Posted by the program's framework.
  void Take(const witness::TrainerStatus& status);
  // The answer to a Ping; none for a program that is stopped.
  [[nodiscard]] std::optional<protocol::Pong> Answer() const;
  [[nodiscard]] bool is_present() const { return page_.has_value(); }

 private:
  Fd archive_;
  Fd imports_;  // what the newest program has imported (runtime/witness/python/lockstep_imports.py)
  std::optional<witness::Page> page_;
  std::optional<witness::Observer> observer_;
  bool has_failed_ = false;  // which was logged
};

}  // namespace lockstep::launch
