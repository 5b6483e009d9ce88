#pragma once
// Prints what `lockstep run` shows while a job runs: a line for each change, and the progress, on a terminal
// as a bar per epoch, else as a line at intervals. One thread.

#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/rendezvous/view.h"
#include "runtime/launch/run/progress_bar.h"

namespace lockstep::launch {

class ProgressLines {
 public:
  ProgressLines();

  void Show(const rendezvous::RendezvousView& view, SteadyTime now);
  // Prints a line; it erases the bar, which is drawn again soon.
  void Say(const std::string& text);
  // What is known at the end, the last step included; keeps the bar and moves to the next line.
  void End(const rendezvous::RendezvousView& view, SteadyTime now);

 private:
  void ShowRounds(const rendezvous::RendezvousView& view);
  void ShowTroubleWithStores(const rendezvous::RendezvousView& view);
  void ShowStep(const protocol::Progress& progress, SteadyTime now);
  void SayStep(const protocol::Progress& progress, SteadyTime now);
  void DrawBar(const protocol::Progress& progress, SteadyTime now);

  int64_t shown_change_ = 0;
  int64_t shown_round_ = 0;
  std::vector<rendezvous::SlowRank> shown_stragglers_;
  int64_t shown_evaluation_ = 0;
  WallTime shown_checkpoint_{};
  std::string shown_outage_;  // what waits
  std::optional<protocol::SaveFailed> shown_save_failed_;
  int64_t shown_step_ = 0;
  SteadyTime last_line_{};
  const bool is_terminal_;
  ProgressBar bar_;
  bool is_bar_drawn_ = false;
};

}  // namespace lockstep::launch
