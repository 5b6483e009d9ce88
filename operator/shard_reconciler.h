#pragma once
// Restricts the controller to jobs of open shards, and tracks which shards have work in progress. Built by
// main before the process leads jobs. Any thread.

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

  // Whether this process has work for the key: a job of an open shard, or a job that is gone.
  [[nodiscard]] bool IsOurs(const std::string& key) const;
  // Drops the jobs of these shards. Call once no work on them is in progress.
  void Forget(const sharding::ShardSet& shards);

 private:
  reconcile::JobReconciler& reconciler_;
  const kube::Store& jobs_;
  sharding::ShardGate& gate_;
};

}  // namespace lockstep
