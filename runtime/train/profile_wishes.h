#pragma once
// A profile that somebody asks for while training runs: rank 0 is told by its supervisor, and tells the
// others which steps to record with the sums of a step. Step thread.

#include <string>

#include "runtime/common/api/profile_window.h"
#include "runtime/common/protocol/control_link.h"
#include "runtime/train/profile.h"
#include "runtime/train/round_control.h"

namespace lockstep::train {

class ProfileWishes {
 public:
  ProfileWishes(Profile& profile, RoundControl& control, protocol::ControlLink& link, int64_t total_steps)
      : profile_(profile), control_(control), link_(link), total_steps_(total_steps) {}

  // Rank 0: what to tell with the step that ends with `end` completed ones. Told with each step until the
  // last of the recorded ones is made: who missed the first word, or came anew, records the rest.
  [[nodiscard]] api::ProfileWindow ToTell(int64_t end);
  // All ranks: what was told, with `step` completed steps.
  void Told(const api::ProfileWindow& window, int64_t step, bool is_first);

 private:
  Profile& profile_;
  RoundControl& control_;
  protocol::ControlLink& link_;
  const int64_t total_steps_;
  std::string request_;  // that is being told
};

}  // namespace lockstep::train
