#pragma once
// What this rank does in some steps, recorded by LibTorch's profiler and stored in Chrome's trace format: the
// steps that LOCKSTEP_PROFILE names before the training, and those that all ranks agreed on while it runs.
// Each step is a range "ProfilerStep#N", the name that PyTorch's own tools look for, up to the next step's
// begin; phases (phase_clock.h) are ranges within, operators within these. Where nothing can be recorded or
// stored, the log says so and training goes on. Step thread; another one stores.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "runtime/common/api/profile_window.h"
#include "runtime/train/trace_range.h"

namespace lockstep::train {

struct ProfileSettings {
  std::string uri;  // of the folder or store: of the checkpoints, else of the run
  std::optional<api::ProfileWindow> planned;
};

class Profile {
 public:
  Profile(ProfileSettings settings, bool is_on_gpu);
  ~Profile();  // drops what is being recorded, waits for what is being stored

  // From `next_step` on, as far as they are not past. False: it is known, or past.
  bool Ask(const api::ProfileWindow& window, int64_t next_step);
  // The newest, until it is recorded.
  [[nodiscard]] const std::optional<api::ProfileWindow>& asked() const { return asked_; }
  [[nodiscard]] const std::optional<api::ProfileWindow>& planned() const { return planned_; }

  // Before a step is begun, or begun again; `rank` takes it.
  void BeginStep(int64_t step, int rank);
  // No step will follow. Waits until everything is stored.
  void Finish(int rank);

 private:
  struct Recording {
    api::ProfileWindow wanted;
    api::ProfileWindow recorded;  // a rank may have come in the midst of it, or the training end before
  };
  [[nodiscard]] std::optional<api::ProfileWindow> WindowOf(int64_t step) const;
  void Start(const api::ProfileWindow& window, int64_t step);
  void Stop(int rank);
  void Drop(const api::ProfileWindow& window);

  const std::string uri_;
  const bool is_on_gpu_;
  std::optional<api::ProfileWindow> planned_;  // until it is recorded
  std::optional<api::ProfileWindow> asked_;
  std::optional<Recording> recording_;
  std::unique_ptr<TraceRange> step_;
  std::jthread store_;  // one trace after the other
};

}  // namespace lockstep::train
