#pragma once
// Which pods and supervisors of a job must exit and never come back. Only the newest are kept, because incarnations come
// without end. An entry matters as long as a message of it may still arrive and be authorised: the operator's
// authorizer refuses a pod that was deleted and believes a token for ten minutes at most, and the supervisor before
// this one has ended with its container. Pure; not synchronised.

#include <cstddef>
#include <deque>
#include <set>
#include <string>

#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::rendezvous {

class Evictions {
 public:
  // How many are kept in a job of so many slots: all pods may be replaced at once, several times.
  static constexpr std::size_t Most(std::size_t slots) { return 100 + 10 * slots; }

  // False where it was evicted before. Forgets the oldest beyond `most`.
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
