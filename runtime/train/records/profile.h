#pragma once
// Records some steps of this rank with LibTorch's profiler and stores them in Chrome's trace format: the
// steps that LOCKSTEP_PROFILE names before the training, and those that all ranks agreed on during it. Each
// step is a range "ProfilerStep#N" (the name that PyTorch's tools look for) up to the beginning of the next
// step; phases (phase_clock.h) are ranges inside it, and operators inside those. If recording or storing
// fails, the log says so and training continues. Step thread; a second thread stores.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "runtime/common/api/profile_window.h"
#include "runtime/train/step/trace_range.h"

namespace lockstep::train {

struct ProfileSettings {
  std::string uri;  // folder or store: that of the checkpoints, or that of the run
  std::optional<api::ProfileWindow> planned;
};

class Profile {
 public:
  Profile(ProfileSettings settings, bool is_on_gpu);
  ~Profile();  // discards an unfinished recording, waits for traces that are being stored

  // Requests a recording of those steps of the window that are at or after `next_step`. Returns false if the
  // window is already known or past.
  bool Ask(const api::ProfileWindow& window, int64_t next_step);
  // The newest request, until it is recorded.
  [[nodiscard]] const std::optional<api::ProfileWindow>& asked() const { return asked_; }
  [[nodiscard]] const std::optional<api::ProfileWindow>& planned() const { return planned_; }

  // Called before a step begins (also when it begins again); `rank` is this rank's number in it.
  void BeginStep(int64_t step, int rank);
  // Called after the last step. Waits until everything is stored.
  void Finish(int rank);

 private:
  struct Recording {
    api::ProfileWindow wanted;
    api::ProfileWindow recorded;  // shorter if the rank joined in the middle, or training ended before
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
