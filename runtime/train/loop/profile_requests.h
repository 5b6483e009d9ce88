#pragma once
// Handles a request for a profile while training runs. Rank 0 gets the request from its supervisor and
// announces the steps to record to the other ranks with the sums of a step. Step thread.

#include <string>

#include "runtime/common/api/profile_window.h"
#include "runtime/common/protocol/control_link.h"
#include "runtime/train/loop/round_control.h"
#include "runtime/train/records/profile.h"

namespace lockstep::train {

class ProfileRequests {
 public:
  ProfileRequests(Profile& profile, RoundControl& control, protocol::ControlLink& link, int64_t total_steps)
      : profile_(profile), control_(control), link_(link), total_steps_(total_steps) {}

  // Rank 0 only: the window to announce with the step after which `end` steps are complete. It is announced
  // with every step until the last recorded one is made, so a rank that missed the first announcement or
  // joined later records the rest.
  [[nodiscard]] api::ProfileWindow WindowToAnnounce(int64_t end);
  // All ranks: handles the announced window when `step` steps are complete. `is_first`: this is rank 0.
  void OnAnnounced(const api::ProfileWindow& window, int64_t step, bool is_first);

 private:
  Profile& profile_;
  RoundControl& control_;
  protocol::ControlLink& link_;
  const int64_t total_steps_;
  std::string request_;  // the request that is being announced
};

}  // namespace lockstep::train
