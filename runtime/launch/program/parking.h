#pragma once
// The parked interpreter of a rank (runtime/witness/python/lockstep_parking.py): started while the Python program trains, it
// imports what this program has imported, and becomes the program of the next round. It is started only if the witness
// observes the process that was started itself, so never for a shell, torchrun, or a program that is not Python, and only where its
// memory fits. One thread.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/file.h"
#include "runtime/launch/process/signals.h"
#include "runtime/launch/program/program_witness.h"
#include "runtime/witness/page.h"

namespace lockstep::launch {

// How the program of the round was started.
struct ProgramStart {
  std::vector<std::string> arguments;    // the first is the path of the interpreter
  std::vector<std::string> environment;  // of the round, without the variables of its witness
  pid_t pid = 0;
};

// Whether an interpreter may be parked next to a program that holds `program_bytes`: each of the pod's `nproc` ranks may
// park one, and each leaves as much free as it takes.
[[nodiscard]] bool FitsParked(double program_bytes, double available_bytes, int nproc);
// Whether the memory is so short that an interpreter that holds `parked_bytes` has to end.
[[nodiscard]] bool IsTooShortForParked(double parked_bytes, double available_bytes, int nproc);

class Parking {
 public:
  Parking(ProgramWitness& witness, int nproc) : witness_(witness), nproc_(nproc) {}
  ~Parking() { End(); }
  Parking(const Parking&) = delete;
  Parking& operator=(const Parking&) = delete;

  // The interpreter as the program of a round with this environment. Absent: the program has to be started.
  struct Parked {
    pid_t pid = 0;
    witness::Page page;
  };
  [[nodiscard]] std::optional<Parked> Take(const std::vector<std::string>& environment);
  void ProgramStarted(ProgramStart start);
  // To be called about ten times a second while the program runs.
  void Observe(const witness::Observation& seen, SteadyTime now);
  // Returns true if it was the parked interpreter that has ended.
  [[nodiscard]] bool HasEnded(const ChildExit& exit);
  // 0: none is parked.
  [[nodiscard]] pid_t pid() const { return parked_.has_value() ? parked_->pid : 0; }

 private:
  struct Interpreter {
    pid_t pid = 0;
    witness::Page page;
    Fd socket;
    std::string said{};  // a part of a line
    bool is_ready = false;
    SteadyTime started{};
  };

  [[nodiscard]] bool IsThePythonThatWasStarted(const witness::Observation& seen) const;
  void Start(SteadyTime now);
  [[nodiscard]] Result<void> StartInterpreter(SteadyTime now);
  void ReadWhatItSays(SteadyTime now);
  void On(const std::string& line, SteadyTime now);
  void LookAfterMemory(SteadyTime now);
  // Ends it, and says why; the program is not parked again.
  void GiveUp(const std::string& reason);
  void End();

  ProgramWitness& witness_;
  const int nproc_;
  ProgramStart program_;
  std::optional<SteadyTime> first_step_;  // of the program, as it was observed
  bool has_tried_ = false;                // in this round
  bool is_off_ = false;                   // and was logged
  SteadyTime next_look_{};
  std::optional<Interpreter> parked_;
};

}  // namespace lockstep::launch
