#include "runtime/train/loop/profile_requests.h"

#include <utility>

#include "runtime/common/base/log.h"

namespace lockstep::train {

api::ProfileWindow ProfileRequests::WindowToAnnounce(int64_t end) {
  const auto& asked = profile_.asked();
  if (asked.has_value() && asked->last >= end) return *asked;
  const auto wanted = control_.profile_wanted();
  if (!wanted.has_value()) return {};
  request_ = wanted->request;
  return api::WindowFrom(end, wanted->steps, total_steps_, profile_.planned()).value_or(api::ProfileWindow{});
}

void ProfileRequests::OnAnnounced(const api::ProfileWindow& window, int64_t step, bool is_first) {
  if (!profile_.Ask(window, step) || !is_first) return;
  log::Info("profile requested", {{"first_step", window.first}, {"last_step", window.last}});
  control_.ProfileAgreed(request_);
  link_.Send(protocol::ProfileAgreed{std::exchange(request_, ""), window.first, window.last});
}

}  // namespace lockstep::train
