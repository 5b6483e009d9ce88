#pragma once
// A Round with up to four pods that expects three, and the requests of the pods.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/common/rendezvous/round.h"

namespace lockstep::rendezvous {

class RoundTest : public ::testing::Test {
 protected:
  RoundTest() : round_(JobSettings{.min_members = 1, .max_members = 4, .expected_members = 3}) {}

  static protocol::Member MemberOf(int slot, const std::string& uid = "",
                                   const std::string& incarnation = "1") {
    const std::string name = "pod-" + std::to_string(slot);
    return {
        .pod = name, .pod_uid = uid.empty() ? name + "-uid" : uid, .slot = slot, .incarnation = incarnation};
  }
  protocol::JoinRequest RequestOf(const protocol::Member& member, int64_t step = -1, int64_t last_round = 0) {
    return {.member = member,
            .address = member.pod,
            .store_port = 100 + member.slot,
            .step = step,
            .last_round = last_round};
  }
  void Join(int slot, int64_t step = -1) {
    const int64_t last = round_.newest_number();
    ASSERT_EQ(round_.Join(RequestOf(MemberOf(slot), step, last), now_), Admission::kAccepted);
    round_.Tick(now_);
  }
  void Beat(int slot) { (void)round_.Heartbeat({.member = MemberOf(slot)}, now_); }
  void FormFirstRound() {
    for (int slot : {0, 1, 2}) Join(slot);
    ASSERT_TRUE(round_.running().has_value());
  }
  std::vector<std::string> Members() const {
    std::vector<std::string> pods;
    for (const auto& peer : round_.running()->peers) pods.push_back(peer.pod);
    return pods;
  }

  SteadyTime now_ = SteadyTime(std::chrono::hours(1));
  Round round_;
};

}  // namespace lockstep::rendezvous
