#pragma once
// How a job spends its time: status.goodput. Pure. The status contains everything that is needed to continue,
// so that a restarted operator continues. It is written when the activity changes, and whenever the status is
// written anyway.

#include <optional>

#include "operator/reconcile/decision.h"
#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// Assigns each second of a job once, so that productive and lost seconds add up to the time from its first
// admission to the newest call of Book.
class GoodputLedger {
 public:
  explicit GoodputLedger(const api::GoodputStatus& status) : status_(status) {}

  // What is known about the time since the last call.
  struct Passed {
    // Seconds without training. No value: nothing new is known, and all of the time belongs to the current
    // activity.
    std::optional<double> standstill_seconds;
    double checkpoint_stall_seconds = 0;  // training waited for a checkpoint
  };
  void Book(WallTime now, const Passed& passed);
  void Begin(api::Activity activity) { status_.activity = activity; }
  // What was assigned beyond `end` belongs to nothing: a pass between the end of a job and the news of it assigned it to the
  // activity of that time.
  void TakeBackAfter(WallTime end);
  // Moves seconds that were counted as productive to `lost`.
  void CountAsLost(double seconds, double& lost);

  [[nodiscard]] api::LostSeconds& lost() { return status_.lost_seconds; }
  [[nodiscard]] WallTime booked_until(WallTime now) const;
  [[nodiscard]] api::GoodputStatus status() const;

 private:
  // The counter of lost seconds for the current activity; null: its seconds are productive.
  [[nodiscard]] double* LostOfActivity();
  [[nodiscard]] double booked_seconds() const;

  api::GoodputStatus status_;
};

// What the job does now.
[[nodiscard]] api::Activity ActivityOf(const Observed& observed, Mode mode,
                                       const api::TrainingJobStatus& status);

// `status`: that of this pass, complete except for its goodput.
void ApplyGoodput(const Observed& observed, const Decision& decision, api::TrainingJobStatus& status);

}  // namespace lockstep::reconcile
