#pragma once
// LOCKSTEP_PROFILE: what this rank does in some steps, recorded by LibTorch's profiler and stored in Chrome's
// trace format. Each step is a range "ProfilerStep#N", the name that PyTorch's own tools look for, up to the
// next step's begin; phases (phase_clock.h) are ranges within, operators within these. Where nothing can be
// recorded or stored, the log says so and training goes on. Step thread; another one stores.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "runtime/common/api/profile_window.h"
#include "runtime/train/trace_range.h"

namespace lockstep::train {

struct ProfileWish {
  api::ProfileWindow window;
  std::string uri;  // of the folder or store: of the checkpoints, else of the run
};

class Profile {
 public:
  Profile(std::optional<ProfileWish> wish, bool is_on_gpu);
  ~Profile();  // drops what is being recorded, waits for what is being stored

  // Before a step is begun, or begun again; `rank` takes it.
  void BeginStep(int64_t step, int rank);
  // No step will follow. Waits until everything is stored.
  void Finish(int rank);

 private:
  void Start();
  void Stop(int rank);

  const std::optional<ProfileWish> wish_;
  const bool is_on_gpu_;
  bool is_recording_ = false;
  bool is_done_ = false;
  std::unique_ptr<TraceRange> step_;
  std::jthread store_;
};

}  // namespace lockstep::train
