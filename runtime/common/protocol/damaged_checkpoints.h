#pragma once
// The damaged checkpoints that are reported: the newest few, each once. The pod, the rendezvous and the
// status each keep such a list and receive the same entries repeatedly. A full list accepts no entry older
// than all of its own, so an entry that was dropped is not reported again. Pure.

#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/common/base/strings.h"

namespace lockstep::protocol {

inline constexpr std::size_t kKeptDamages = 8;
// An event has at most 1024 bytes.
inline constexpr std::size_t kMaxDamageReason = 512;

// `kept`: newest first. Returns true if `found` is new. `Damage` has a `step` and a `reason`.
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
