#pragma once
// Why pods do not start, in words that name the field to mend. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

struct WaitingReason {
  std::string_view reason;  // of api::reason
  std::string message;
  bool needs_people = true;  // waiting alone will not help
};

// The most telling one over all pods, in their order by name; nullopt where every pod starts as it should.
[[nodiscard]] std::optional<WaitingReason> FindWaitingReason(const Observed& observed);

}  // namespace lockstep::reconcile
