#pragma once
// The `lockstep worker` processes that `lockstep run` starts on its machine, each in the role of a pod. Used
// by one thread, which must live as long as the workers do.

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/api/training_job.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/launch/process/signals.h"
#include "runtime/launch/run/machine_report.h"
#include "runtime/launch/supervisor/program_output.h"

namespace lockstep::launch {

struct LocalWorkersOptions {
  api::TrainingJob job;
  std::string folder;   // for logs, the config document and the token
  std::string program;  // path of `lockstep`
  std::string address;  // where ranks of other workers reach the ranks of these
  std::string node = "local";
  int first_slot = 0;
  int count = 1;
  bool prefix_ranks = true;  // prefix the lines of a program with several ranks
};

class LocalWorkers {
 public:
  explicit LocalWorkers(LocalWorkersOptions options);

  // Creates the folder and writes the files that the workers read.
  [[nodiscard]] Result<void> Prepare(const protocol::WorkerConfig& config, const std::string& token);
  [[nodiscard]] Result<void> Start(int slot);
  void SignalAll(int signal);
  [[nodiscard]] bool AnyAlive() const;

  struct Ended {
    int slot = 0;
    std::string uid;
    WorkerEnd end;
  };
  // Returns nullopt if the process was not one of the workers.
  [[nodiscard]] std::optional<Ended> TakeEnd(const ChildExit& exit);

  // Of the newest process in the slot.
  [[nodiscard]] const std::string& UidOf(int slot) const { return at(slot).uid; }
  [[nodiscard]] std::string NameOf(int slot) const;
  // The names of a user program's variables that can be resolved only in a cluster.
  [[nodiscard]] std::vector<std::string> LeftOut() const;

 private:
  struct Worker {
    pid_t pid = 0;  // 0: none
    std::string uid;
    std::unique_ptr<ProgramOutputPrinter> output;  // if it runs a program
  };

  // Returns the pipe's end that the worker inherits to send the lines of its program.
  [[nodiscard]] Result<Fd> ShowOutputOf(Worker& worker) const;
  void AddProgram(std::vector<std::string>& environment, std::vector<std::string>& arguments) const;
  [[nodiscard]] std::string ThreadsPerRank() const;
  [[nodiscard]] std::string Path(const std::string& name) const { return options_.folder + "/" + name; }
  [[nodiscard]] std::string TokenFile() const { return Path("secret/token"); }
  [[nodiscard]] const Worker& at(int slot) const {
    return workers_.at(static_cast<std::size_t>(slot - options_.first_slot));
  }

  LocalWorkersOptions options_;
  std::vector<Worker> workers_;
  int nproc_ = 1;
};

}  // namespace lockstep::launch
