#pragma once
// A supervision of one pod, for tests that send it events and check its actions.

#include <gtest/gtest.h>

#include "runtime/common/protocol/exit_codes.h"
#include "runtime/launch/supervisor/supervision.h"

namespace lockstep::launch {

using namespace std::chrono_literals;
using protocol::ExitCode;
using protocol::JoinAnswer;
using protocol::JoinState;
using protocol::LeaveMode;
using protocol::LeaveReason;

class SupervisionTest : public ::testing::Test {
 protected:
  explicit SupervisionTest(int nproc = 1) : supervision_(SettingsOf(nproc)) {
    (void)supervision_.Start(now_);
  }

  static SupervisionSettings SettingsOf(int nproc) {
    SupervisionSettings settings;
    settings.config.nproc = nproc;
    settings.config.in_place_limit = 2;
    settings.config.rendezvous.join_timeout_seconds = 60;
    settings.member = {.pod = "p", .pod_uid = "u", .incarnation = "i"};
    settings.address = "10.0.0.1";
    return settings;
  }

  Actions Send(Event event) { return supervision_.On(event, now_); }
  Actions Say(protocol::FromRank message, int local_rank = 0) {
    return Send(RankMessage{local_rank, message});
  }
  Actions Assign(int64_t round, int first_rank = 1) {
    return Send(JoinAnswered{JoinAnswer{.state = JoinState::kAssigned,
                                        .round = round,
                                        .world = 3,
                                        .first_rank = first_rank,
                                        .previous_end = "Scale: 1 newcomer waiting"}});
  }
  void EnterRound(int64_t round, int first_rank = 1) {
    (void)Say(protocol::Ready{.step = 4, .store_port = 7});
    (void)Assign(round, first_rank);
  }
  template <typename T>
  static const T* Find(const Actions& actions) {
    for (const Action& action : actions) {
      if (const T* found = std::get_if<T>(&action)) return found;
    }
    return nullptr;
  }

  SteadyTime now_ = SteadyTime(1h);
  Supervision supervision_;
};

}  // namespace lockstep::launch
