#pragma once
// The settings of a job's rounds. Plain values.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace lockstep::rendezvous {

// spec.healthPolicy.straggler without its action, which the worker takes.
struct StragglerSettings {
  double factor = 1.5;
  int window_steps = 100;
  friend bool operator==(const StragglerSettings&, const StragglerSettings&) = default;
};

// spec.successPolicy.type: which members must finish to complete a job with a program of the user's own. The
// ranks of lockstep-rank finish together.
enum class SuccessRule { kAll, kAny, kRank0 };

struct JobSettings {
  int min_members = 1;  // fewer never form a round
  int max_members = 1;
  int expected_members = 1;    // spec.worker.replicas: a round has at most these; 0: no round forms
  int standby_members = 0;     // spec.standbyReplicas: wait until a place is free
  std::optional<int> nproc{};  // ranks of a member, if spec.nprocPerNode is a number
  // how long a round waits for members whose death was not observed
  std::chrono::milliseconds last_call{3'000};
  std::chrono::milliseconds grow_delay{0};              // how long a newcomer waits for other newcomers
  std::chrono::milliseconds heartbeat_timeout{10'000};  // silence after which a member counts as dead
  std::optional<StragglerSettings> straggler{};         // absent: no detection
  SuccessRule success = SuccessRule::kAll;
  std::string save_request{};     // each new value requests one checkpoint in addition to scheduled ones
  std::string profile_request{};  // each new value requests a profile of profile_steps steps
  int profile_steps = 0;
  // A text about the pods that have not started, for the members that wait for them; empty: all expected pods
  // have started.
  std::string waits_for{};
  std::map<int, std::string> departures{};  // by slot: why the node of that pod is about to be taken away
  int64_t first_round = 1;  // lowest number for rounds: status.rendezvous.round + 1 after a restart
};

}  // namespace lockstep::rendezvous
