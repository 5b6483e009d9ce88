#pragma once
// The only writer: carries out a plan through KubeClient and teaches the caches what it wrote. Stops at the
// first stage that fails: the next pass sees what is done and plans the rest. No pod comes or goes for a job
// that is no longer as it was observed. Any thread.

#include <optional>

#include "operator/kube/client.h"
#include "operator/reconcile/observe.h"
#include "operator/reconcile/plan.h"

namespace lockstep::reconcile {

struct Applied {
  std::optional<Error> error;
  // The error is the API server's refusal of an object (quota, admission, an invalid template, a foreign
  // object of that name): the job's status must tell. Where the spec is to be mended, the error names the
  // field.
  bool is_refusal = false;
};

class Applier {
 public:
  Applier(kube::KubeClient& client, Caches& caches) : client_(client), caches_(caches) {}

  [[nodiscard]] Applied Apply(const Observed& observed, const std::vector<PlannedAction>& actions);
  // Writes `status` where it differs from the observed one. kConflict where somebody changed the job since.
  // True where something was written.
  [[nodiscard]] Result<bool> WriteStatus(const Observed& observed, const api::TrainingJobStatus& status);

 private:
  class Executor;

  kube::KubeClient& client_;
  Caches& caches_;
};

// RFC 7396: the smallest document that turns `before` into `after`; an empty object where they are equal.
// Pure.
[[nodiscard]] Json MergePatchBetween(const Json& before, const Json& after);

}  // namespace lockstep::reconcile
