#pragma once
// What the two processes of the bench tell each other: a page of memory that both map. Each field has one
// writer process.

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::bench {

struct Plan {
  int members = 10'000;
  int deaths = 100;
  // Members whose slot is a multiple of it die, until there are `deaths`.
  [[nodiscard]] int stride() const { return members / deaths; }
  [[nodiscard]] bool Dies(int slot) const { return slot % stride() == 0 && slot / stride() < deaths; }
};

inline int64_t NowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// How many members have got a certain answer, and when the newest of them did.
struct Tally {
  std::atomic<int> count{0};
  std::atomic<int64_t> newest_ns{0};
  void Add() {
    newest_ns = NowNs();
    ++count;
  }
};

struct Scoreboard {
  // Written by the service's process.
  std::atomic<int> port{0};  // 0: not listening yet
  std::array<char, 4096> ca{};
  std::atomic<bool> last_may_join{false};
  std::atomic<bool> over{false};

  // Written by the members' process.
  std::atomic<int> connected{0};
  std::atomic<int> present{0};  // members that have sent a join, and got the answer to a heartbeat after it
  std::atomic<int64_t> last_join_ns{0};
  Tally placed;        // in round 1
  Tally notified;      // that round 1 is over
  Tally placed_again;  // in round 2
  std::atomic<int64_t> beats{0};
  std::atomic<int> failures{0};
};

inline Scoreboard& MapScoreboard() {
  void* page = ::mmap(nullptr, sizeof(Scoreboard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *new (page) Scoreboard;  // lives as long as both processes
}

}  // namespace lockstep::bench
