#pragma once
// Where a job's time goes: status.goodput. Pure. Everything it needs to go on is in the status, so that an
// operator that is restarted goes on with it; it is written where the activity changes or the status is
// written anyway.

#include "operator/reconcile/decision.h"
#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// Books each second of a job once, so that productive and lost seconds sum to the time since its first
// admission, up to the newest Book.
class GoodputLedger {
 public:
  explicit GoodputLedger(const api::GoodputStatus& status) : status_(status) {}

  // The time from the last booking to `now` under the activity that it began with. Of training, at most
  // `checkpoint_stall_seconds` were waited for a checkpoint.
  void Book(WallTime now, double checkpoint_stall_seconds);
  void Begin(api::Activity activity) { status_.activity = activity; }
  // What was booked as productive turns out to be lost.
  void TakeBack(double seconds, double& lost);

  [[nodiscard]] api::LostSeconds& lost() { return status_.lost_seconds; }
  [[nodiscard]] api::GoodputStatus status() const;

 private:
  api::GoodputStatus status_;
};

// What the job does now.
[[nodiscard]] api::Activity ActivityOf(const Observed& observed, Mode mode,
                                       const api::TrainingJobStatus& status);

// `status`: of this pass, complete but for its goodput.
void ApplyGoodput(const Observed& observed, const Decision& decision, api::TrainingJobStatus& status);

}  // namespace lockstep::reconcile
