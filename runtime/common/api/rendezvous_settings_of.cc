#include "runtime/common/api/rendezvous_settings_of.h"

#include <chrono>

namespace lockstep::api {
namespace {

rendezvous::SuccessRule RuleOf(SuccessType type) {
  switch (type) {
    case SuccessType::kAll: return rendezvous::SuccessRule::kAll;
    case SuccessType::kAny: return rendezvous::SuccessRule::kAny;
    case SuccessType::kRank0: return rendezvous::SuccessRule::kRank0;
  }
  return rendezvous::SuccessRule::kAll;
}

}  // namespace

rendezvous::JobSettings RendezvousSettingsOf(const TrainingJobSpec& spec) {
  rendezvous::JobSettings settings{
      .min_members = spec.min_replicas(),
      .max_members = spec.max_replicas(),
      .expected_members = spec.worker.replicas,
      .standby_members = spec.standby_replicas,
      .last_call = std::chrono::seconds(spec.rendezvous.last_call_seconds),
      .grow_delay = std::chrono::seconds(spec.elastic_policy ? spec.elastic_policy->grow_delay_seconds : 0),
      .heartbeat_timeout = std::chrono::seconds(spec.rendezvous.heartbeat_timeout_seconds),
      .success = RuleOf(spec.success_policy.type)};
  if (spec.nproc_per_node.mode == NprocMode::kCount) settings.nproc = spec.nproc_per_node.count;
  if (const auto& policy = spec.health_policy.straggler)
    settings.straggler = rendezvous::StragglerSettings{policy->factor, policy->window_steps};
  return settings;
}

}  // namespace lockstep::api
