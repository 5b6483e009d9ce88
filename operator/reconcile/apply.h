#pragma once
// The only writer: carries out a plan through KubeClient and adds what it wrote to the caches. Stops at the
// first stage that fails; the next pass observes what was done and plans the rest. Creates and deletes pods
// only if the job is still as it was observed. Any thread.

#include <optional>
#include <vector>

#include "operator/kube/client.h"
#include "operator/reconcile/action.h"
#include "operator/reconcile/observe.h"

namespace lockstep::reconcile {

struct Applied {
  std::optional<Error> error;
  // The API server rejected an object (quota, admission, an invalid template, a foreign object of that name),
  // so the job's status must report the error. If the spec has to be corrected, the error names the field.
  bool is_refusal = false;
};

class Applier {
 public:
  Applier(kube::KubeClient& client, Caches& caches) : client_(client), caches_(caches) {}

  [[nodiscard]] Applied Apply(const Observed& observed, const std::vector<PlannedAction>& actions);
  // Writes `status` if it differs from the observed one, and returns true if it wrote. kConflict: the job was
  // changed meanwhile.
  [[nodiscard]] Result<bool> WriteStatus(const Observed& observed, const api::TrainingJobStatus& status);

 private:
  class Executor;

  kube::KubeClient& client_;
  Caches& caches_;
};

// The smallest RFC 7396 document that turns `before` into `after`; an empty object if they are equal. Pure.
[[nodiscard]] Json MergePatchBetween(const Json& before, const Json& after);

}  // namespace lockstep::reconcile
