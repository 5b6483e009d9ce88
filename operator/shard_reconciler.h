#pragma once
// Lets the controller work on the jobs of open shards only, and knows when work on a shard is under way. Built by
// main before the process takes jobs. Any thread.

#include <string>

#include "operator/controller/reconciler.h"
#include "operator/kube/store.h"
#include "operator/reconcile/job_reconciler.h"
#include "operator/sharding/shard_gate.h"

namespace lockstep {

class ShardReconciler final : public controller::Reconciler {
 public:
  ShardReconciler(reconcile::JobReconciler& reconciler, const kube::Store& jobs, sharding::ShardGate& gate)
      : reconciler_(reconciler), jobs_(jobs), gate_(gate) {}

  Result<controller::Outcome> Reconcile(const std::string& key) override;
  [[nodiscard]] controller::Priority PriorityOf(const std::string& key) const override {
    return reconciler_.PriorityOf(key);
  }

  // Whether something is to be done for the key here: a job of an open shard, or one that is gone.
  [[nodiscard]] bool IsOurs(const std::string& key) const;
  // Call once nothing works on these shards.
  void Forget(const sharding::ShardSet& shards);

 private:
  reconcile::JobReconciler& reconciler_;
  const kube::Store& jobs_;
  sharding::ShardGate& gate_;
};

}  // namespace lockstep
