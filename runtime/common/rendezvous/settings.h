#pragma once
// How the host wants a job's rounds. Plain values.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::rendezvous {

// spec.healthPolicy.straggler; what follows is the worker's matter.
struct StragglerSettings {
  double factor = 1.5;
  int window_steps = 100;
  friend bool operator==(const StragglerSettings&, const StragglerSettings&) = default;
};

// spec.successPolicy.type: whose end is the end of a job of programs. Ranks of lockstep-rank reach it together.
enum class SuccessRule { kAll, kAny, kRank0 };

struct JobSettings {
  int min_members = 1;  // fewer never form a round
  int max_members = 1;
  int expected_members = 1;    // spec.worker.replicas: a round has no more places; 0: none forms
  int standby_members = 0;     // spec.standbyReplicas: wait outside until a place is free
  std::optional<int> nproc{};  // ranks of a member, where spec.nprocPerNode is a number
  std::chrono::milliseconds last_call{3'000};           // how long a round waits for those nobody saw die
  std::chrono::milliseconds grow_delay{0};              // how long a newcomer waits for other newcomers
  std::chrono::milliseconds heartbeat_timeout{10'000};  // silence that counts as a death
  std::optional<StragglerSettings> straggler{};         // absent: nobody looks
  SuccessRule success = SuccessRule::kAll;
  std::string save_request{};     // asks for one checkpoint, beside those that are due, whenever it changes
  std::string profile_request{};  // asks for a profile of so many steps, whenever it changes
  int profile_steps = 0;
  // What the job itself waits for: pods that have not started. In words for the members that wait with it;
  // empty: all that are expected have.
  std::string waits_for{};
  int64_t first_round = 1;  // rounds start here or above: status.rendezvous.round + 1 after a restart
};

}  // namespace lockstep::rendezvous
