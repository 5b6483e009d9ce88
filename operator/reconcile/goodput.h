#pragma once
// Where a job's time goes: status.goodput. Pure. Everything it needs to go on is in the status, so that an
// operator that is restarted goes on with it; it is written where the activity changes or the status is
// written anyway.

#include <optional>

#include "operator/reconcile/decision.h"
#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// Books each second of a job once, so that productive and lost seconds sum to the time since its first
// admission, up to the newest Book.
class GoodputLedger {
 public:
  explicit GoodputLedger(const api::GoodputStatus& status) : status_(status) {}

  // What is known about the time since the last booking.
  struct Passed {
    // Without training. No value: nothing new is known, and all of the time belongs to the current activity.
    std::optional<double> standstill_seconds;
    double checkpoint_stall_seconds = 0;  // training waited for a checkpoint
  };
  void Book(WallTime now, const Passed& passed);
  void Begin(api::Activity activity) { status_.activity = activity; }
  // What was booked as productive turns out to be lost.
  void TakeBack(double seconds, double& lost);

  [[nodiscard]] api::LostSeconds& lost() { return status_.lost_seconds; }
  [[nodiscard]] WallTime booked_until(WallTime now) const;
  [[nodiscard]] api::GoodputStatus status() const;

 private:
  // The counter of lost seconds of the current activity; null: its seconds are productive.
  [[nodiscard]] double* LostOfActivity();
  [[nodiscard]] double booked_seconds() const;

  api::GoodputStatus status_;
};

// What the job does now.
[[nodiscard]] api::Activity ActivityOf(const Observed& observed, Mode mode,
                                       const api::TrainingJobStatus& status);

// `status`: of this pass, complete but for its goodput.
void ApplyGoodput(const Observed& observed, const Decision& decision, api::TrainingJobStatus& status);

}  // namespace lockstep::reconcile
