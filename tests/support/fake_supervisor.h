#pragma once
// Stands in for supervisors and rendezvous at once: starts real lockstep-rank processes, each as a pod of its
// own, hears what they say and forms rounds as the service would (all living ranks ready → a round; a death →
// abort; a newcomer → yield). Everything happens on the test's thread, inside RunUntil.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/queue.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/launch/rank_process.h"

namespace lockstep::testing {

// One rank process and all that it has said.
struct RankView {
  std::unique_ptr<launch::RankProcess> process;
  pid_t pid = -1;
  bool alive = true;
  std::optional<int> exit_code;  // 128 + signal where one ended it
  bool ready = false;
  bool in_round = false;
  bool finished = false;
  protocol::Ready last_ready;
  protocol::Progress progress;
  std::map<int64_t, SteadyTime> first_commit;  // by round
  std::vector<protocol::Synced> synced;
  std::vector<protocol::Evaluated> evaluated;
  std::vector<protocol::Saved> saved;
  std::optional<protocol::Failed> failed;
};

class FakeSupervisor {
 public:
  explicit FakeSupervisor(std::string rank_program) : rank_program_(std::move(rank_program)) {}
  ~FakeSupervisor();

  int Start();  // the index of the new process
  void Signal(int index, int signal);
  void Stop(int index, double grace_seconds);
  // Says that the round is over, as the service does for a rank whose heartbeat stopped.
  void AbortRound();
  // Rounds form only with so many ranks. 0 keeps them from forming.
  void RequireRanks(int count) { required_ = count; }

  // Handles what the ranks say until `done`; false after `limit`.
  [[nodiscard]] bool RunUntil(const std::function<bool()>& done,
                              std::chrono::seconds limit = std::chrono::seconds(90));

  [[nodiscard]] const RankView& rank(int index) const { return ranks_.at(static_cast<std::size_t>(index)); }
  [[nodiscard]] int count() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int64_t round() const { return round_; }
  // Of all ranks that live.
  [[nodiscard]] int64_t LowestStep() const;
  [[nodiscard]] bool AllEnded() const;

 private:
  struct Ended {};
  struct News {
    int index;
    std::variant<protocol::FromRank, Ended> what;
    SteadyTime time;
  };
  void Handle(const News& news);
  void Hear(RankView& rank, const protocol::FromRank& message, SteadyTime time);
  void Reap(RankView& rank);
  void TellOthers(const RankView& except, protocol::LeaveMode mode);
  void FormRoundIfAllReady();

  const std::string rank_program_;
  Queue<News> news_;
  std::vector<RankView> ranks_;
  int required_ = 1;
  int64_t round_ = 0;
};

}  // namespace lockstep::testing
