#include "runtime/launch/supervisor/milestones.h"

#include <cmath>
#include <variant>

#include "runtime/common/base/log.h"

namespace lockstep::launch {

void LogMilestone(const RankMessage& event) {
  if (const auto* synced = std::get_if<protocol::Synced>(&event.message)) {
    log::Info("rank entered the round", {{"local_rank", event.local_rank},
                                         {"round", synced->round},
                                         {"step", synced->step},
                                         {"state_from", synced->source},
                                         {"seconds", synced->seconds}});
  } else if (const auto* evaluated = std::get_if<protocol::Evaluated>(&event.message)) {
    log::Info("evaluated", {{"step", evaluated->step},
                            {"epoch", evaluated->epoch},
                            {"loss", evaluated->loss.value_or(NAN)},
                            {"accuracy", evaluated->accuracy.value_or(NAN)}});
  } else if (const auto* saved = std::get_if<protocol::Saved>(&event.message)) {
    log::Info("checkpoint stored", {{"step", saved->step},
                                    {"uri", saved->uri},
                                    {"seconds", saved->seconds},
                                    {"stall_seconds", saved->stall_seconds},
                                    {"bytes", saved->bytes}});
  } else if (const auto* failed = std::get_if<protocol::SaveFailed>(&event.message)) {
    log::Warning("checkpoint not stored", {{"step", failed->step}, {"reason", failed->reason}});
  } else if (const auto* away = std::get_if<protocol::StoreUnavailable>(&event.message)) {
    if (away->waiting.empty())
      return log::Info("the store answers again", {{"local_rank", event.local_rank}});
    log::Warning("the store does not answer",
                 {{"local_rank", event.local_rank}, {"waiting", away->waiting}, {"reason", away->reason}});
  } else if (const auto* damaged = std::get_if<protocol::CheckpointDamaged>(&event.message)) {
    log::Error("damaged checkpoint skipped", {{"step", damaged->step}, {"reason", damaged->reason}});
  } else if (const auto* end = std::get_if<protocol::Failed>(&event.message)) {
    log::Error("rank failed",
               {{"local_rank", event.local_rank}, {"exit_code", end->exit_code}, {"reason", end->reason}});
  }
}

}  // namespace lockstep::launch
