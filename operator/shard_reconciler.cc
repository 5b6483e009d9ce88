#include "operator/shard_reconciler.h"

namespace lockstep {

Result<controller::Outcome> ShardReconciler::Reconcile(const std::string& key) {
  const kube::Object job = jobs_.Get(kube::KeyFromString(key));
  const auto pass = job == nullptr ? std::nullopt : gate_.Enter(kube::UidOf(*job));
  if (pass) return reconciler_.Reconcile(key);
  reconciler_.Forget(key);  // the job is gone, or another job with its name is in another shard
  return controller::Outcome{};
}

bool ShardReconciler::IsOurs(const std::string& key) const {
  const kube::Object job = jobs_.Get(kube::KeyFromString(key));
  return job == nullptr || gate_.IsOpenTo(kube::UidOf(*job)) || reconciler_.IsTracked(key);
}

void ShardReconciler::Forget(const sharding::ShardSet& shards) {
  reconciler_.ForgetThose([&](const std::string& uid) { return shards[sharding::ShardOf(uid)]; });
}

}  // namespace lockstep
