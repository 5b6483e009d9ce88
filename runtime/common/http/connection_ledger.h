#pragma once
// Which connections a server has, and whether it takes another. Any thread; a server has one, which outlives
// what it admits.
//
// A full server closes its oldest connection that is not trusted for each new one, so that nobody keeps members out by
// connections from many addresses: a member has time for its first request until as many others connect as the
// server takes in all.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "runtime/common/base/mutex.h"
#include "runtime/common/http/server.h"

namespace lockstep::http {

class ConnectionLedger {
 public:
  // One connection's place; its end frees the place. Moves; an empty one stands for a refusal.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept;
    Place& operator=(Place&&) = delete;
    ~Place();
    [[nodiscard]] bool has_value() const { return ledger_ != nullptr; }
    [[nodiscard]] bool is_trusted() const { return is_trusted_; }
    // The connection has had a request that was authorised, or answered with success. From any thread.
    void Trust();

   private:
    friend class ConnectionLedger;
    ConnectionLedger* ledger_ = nullptr;
    std::string peer_;
    int64_t number_ = 0;
    std::atomic<bool> is_trusted_ = false;
  };

  // `open_files` bounds the limit of all connections further.
  ConnectionLedger(const ConnectionLimits& limits, std::size_t open_files);

  // Empty where the server takes no connection of this address now. The log says so once, until the address has
  // no connection left, or the server half of what it takes. `close` ends the connection soon, as long as it has the
  // place; it is called from a later Admit, at most once.
  [[nodiscard]] Place Admit(const std::string& peer, std::function<void()> close);

 private:
  struct Count {
    std::size_t all = 0;
    std::size_t untrusted = 0;
    bool is_refused = false;
  };
  [[nodiscard]] bool MayConnect(const std::string& peer) LOCKSTEP_REQUIRES(mutex_);
  // What closes the oldest connection that is not trusted; empty where none may be closed.
  [[nodiscard]] std::function<void()> Displace() LOCKSTEP_REQUIRES(mutex_);
  void Trust(const Place& place);
  void End(const Place& place);

  const ConnectionLimits limits_;
  Mutex mutex_;
  std::size_t all_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t next_number_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  // How to close those that are not trusted, by their number: oldest first.
  std::map<int64_t, std::function<void()>> untrusted_ LOCKSTEP_GUARDED_BY(mutex_);
  std::set<int64_t> displaced_ LOCKSTEP_GUARDED_BY(mutex_);  // and not closed yet
  bool is_full_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::map<std::string, Count> by_peer_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::http
