#pragma once
// Which damaged checkpoints are told of: the newest few, each once. The pod, the rendezvous and the status
// keep such a list each, and get to hear of the same ones again and again. None takes in what is older than
// all that a full list has: so what fell out of it never comes back as news. Pure.

#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/common/base/strings.h"

namespace lockstep::protocol {

inline constexpr std::size_t kKeptDamages = 8;
// An event has 1024 bytes in all.
inline constexpr std::size_t kMaxDamageReason = 512;

// `kept`: newest first. True where `found` is new. `Damage` has a `step` and a `reason`.
template <typename Damage>
bool KeepNewest(std::vector<Damage>& kept, Damage found) {
  found.reason = Truncate(found.reason, kMaxDamageReason);
  const auto is_newer = [](const Damage& one, const Damage& other) {
    return std::tie(one.step, one.reason) > std::tie(other.step, other.reason);
  };
  const auto place = std::lower_bound(kept.begin(), kept.end(), found, is_newer);
  const bool is_known = place != kept.end() && !is_newer(found, *place);
  const bool is_too_old = place == kept.end() && kept.size() >= kKeptDamages;
  if (is_known || is_too_old) return false;
  kept.insert(place, std::move(found));
  if (kept.size() > kKeptDamages) kept.pop_back();
  return true;
}

}  // namespace lockstep::protocol
