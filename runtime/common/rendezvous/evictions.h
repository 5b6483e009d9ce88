#pragma once
// The evicted pods and supervisors of a job, which must exit and never return. Only the newest are kept,
// because the number of incarnations is unlimited. An entry matters as long as an authorised message from it
// may still arrive: the operator's authorizer rejects deleted pods and caches a token for ten minutes at
// most, and an earlier supervisor has ended with its container. Pure; not synchronised.

#include <cstddef>
#include <deque>
#include <set>
#include <string>

#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::rendezvous {

class Evictions {
 public:
  // The number of entries to keep in a job with this many slots: all pods may be replaced at once, several
  // times.
  static constexpr std::size_t Most(std::size_t slots) { return 100 + 10 * slots; }

  // False if it was evicted before. Drops the oldest entries beyond `most`.
  bool AddPod(const std::string& uid, std::size_t most) { return Add(uid, most); }
  bool AddSupervisor(const protocol::Member& member, std::size_t most) { return Add(KeyOf(member), most); }

  [[nodiscard]] bool Contains(const protocol::Member& member) const {
    return keys_.contains(member.pod_uid) || keys_.contains(KeyOf(member));
  }

 private:
  using Keys = std::set<std::string>;

  static std::string KeyOf(const protocol::Member& member) {
    return member.pod_uid + "/" + member.incarnation;
  }
  bool Add(const std::string& key, std::size_t most) {
    const auto [place, is_new] = keys_.insert(key);
    if (is_new) oldest_first_.push_back(place);
    while (oldest_first_.size() > most) {
      keys_.erase(oldest_first_.front());
      oldest_first_.pop_front();
    }
    return is_new;
  }

  Keys keys_;  // pod uids, and "uid/incarnation"
  std::deque<Keys::const_iterator> oldest_first_;
};

}  // namespace lockstep::rendezvous
