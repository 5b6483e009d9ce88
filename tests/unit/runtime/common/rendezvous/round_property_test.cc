// Random schedules of all events of a job's members, against the guarantees of the rendezvous.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

#include "runtime/common/rendezvous/round.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

struct World {
  JobSettings settings{.min_members = 2, .max_members = 4, .expected_members = 4};
  Round round{settings};
  SteadyTime now = SteadyTime(1h);
  std::map<int, int> incarnation;  // by slot
  std::vector<std::string> order;  // members of the newest round
  int64_t newest = 0;

  protocol::Member MemberOf(int slot) {
    const std::string uid = std::to_string(slot) + "-" + std::to_string(incarnation[slot]);
    return {.pod = std::to_string(slot), .pod_uid = uid, .slot = slot, .incarnation = uid};
  }

  void Do(int action, int slot) {
    const protocol::Member member = MemberOf(slot);
    switch (action) {
      case 0:
      case 1:
      case 2:
        (void)round.Join({.member = member, .address = member.pod, .last_round = round.newest_number()}, now);
        break;
      case 3: (void)round.Broken({.member = member, .round = newest}, now); break;
      case 4:
        (void)round.Leave({.member = member, .round = newest, .reason = protocol::LeaveReason::kRankDied},
                          now);
        break;
      case 5:
        round.PodGone({.pod_uid = member.pod_uid, .reason = "gone"}, now);
        ++incarnation[slot];
        break;
      case 6: (void)round.Heartbeat({.member = member, .round = newest}, now); break;
      default: now += 1500ms;
    }
    round.Tick(now);
  }

  void CheckPromises() {
    RC_ASSERT(round.newest_number() >= newest);
    if (!round.running().has_value() || round.running()->number == newest) return;
    const ClosedRound& closed = *round.running();
    RC_ASSERT(closed.number == round.newest_number());
    RC_ASSERT(static_cast<int>(closed.peers.size()) >= settings.min_members);
    RC_ASSERT(static_cast<int>(closed.peers.size()) <= settings.max_members);
    int next_rank = 0;
    std::vector<std::string> members;
    for (const Peer& peer : closed.peers) {
      RC_ASSERT(peer.first_rank == next_rank);
      next_rank += peer.nproc;
      RC_ASSERT(std::find(members.begin(), members.end(), peer.pod) == members.end());
      members.push_back(peer.pod);
    }
    RC_ASSERT(next_rank == closed.world);
    newest = closed.number;
    order = members;
  }
};

TEST(RoundProperty, KeepsItsPromisesUnderAnySchedule) {
  EXPECT_TRUE(rc::check([] {
    World world;
    const auto schedule = *rc::gen::container<std::vector<std::pair<int, int>>>(
        rc::gen::pair(rc::gen::inRange(0, 9), rc::gen::inRange(0, 5)));
    for (const auto& [action, slot] : schedule) {
      world.Do(action, slot);
      world.CheckPromises();
    }
  }));
}

// Three places and two standbys: a full round takes survivors first, in their order, then standbys, then
// newcomers.
TEST(RoundProperty, FillsPlacesInTheOrderOfMerit) {
  EXPECT_TRUE(rc::check([] {
    World world;
    world.settings = {.min_members = 2,
                      .max_members = 4,
                      .expected_members = 3,
                      .standby_members = 2,
                      .heartbeat_timeout = 1h};
    world.round.SetSettings(world.settings);
    std::vector<std::string> survivors;  // of the newest round, in its order
    std::set<std::string> asking;
    std::set<std::string> standing_by;  // asked while a round was full, or were left out of one
    const auto schedule = *rc::gen::container<std::vector<std::pair<int, int>>>(
        rc::gen::pair(rc::gen::inRange(0, 9), rc::gen::inRange(0, 5)));
    for (const auto& [action, slot] : schedule) {
      const std::string name = std::to_string(slot);
      const int64_t before = world.newest;
      if (action == 4 || action == 5) {
        std::erase(survivors, name);
        asking.erase(name);
        standing_by.erase(name);
      }
      const bool is_full = world.round.running().has_value() && world.order.size() == 3;
      const bool is_in = std::find(world.order.begin(), world.order.end(), name) != world.order.end();
      if (action <= 2) asking.insert(name);
      if (action <= 2 && is_full && !is_in) standing_by.insert(name);
      world.Do(action, slot);
      world.CheckPromises();
      if (world.newest == before) continue;
      RC_ASSERT(world.order.size() <= 3U);
      RC_ASSERT(world.order.size() >= survivors.size());
      RC_ASSERT(std::equal(survivors.begin(), survivors.end(), world.order.begin()));
      bool saw_newcomer = false;
      for (std::size_t i = 0; i < world.order.size(); ++i) {
        asking.erase(world.order[i]);
        if (i < survivors.size()) continue;
        const bool stood_by = standing_by.erase(world.order[i]) > 0;
        RC_ASSERT(!(stood_by && saw_newcomer));
        saw_newcomer = saw_newcomer || !stood_by;
      }
      RC_ASSERT(!saw_newcomer || standing_by.empty());
      standing_by = asking;
      survivors = world.order;
    }
  }));
}

// After any events, once members only join and send heartbeats, a round with all of them forms.
TEST(RoundProperty, ConvergesOnceFaultsStop) {
  EXPECT_TRUE(rc::check([] {
    World world;
    const auto schedule = *rc::gen::container<std::vector<std::pair<int, int>>>(
        rc::gen::pair(rc::gen::inRange(0, 9), rc::gen::inRange(0, 4)));
    for (const auto& [action, slot] : schedule) world.Do(action, slot);
    for (int turn = 0; turn < 4; ++turn) {
      // Each supervisor behaves correctly: it joins whenever it has no place in a running round.
      for (int slot = 0; slot < 4; ++slot) {
        const auto& running = world.round.running();
        const bool inside =
            running.has_value() && std::any_of(running->peers.begin(), running->peers.end(),
                                               [&](const auto& peer) { return peer.slot == slot; });
        world.Do(inside ? 6 : 0, slot);
      }
    }
    RC_ASSERT(world.round.running().has_value());
    RC_ASSERT(world.round.running()->peers.size() == 4U);
  }));
}

}  // namespace
}  // namespace lockstep::rendezvous
