#pragma once
// Which connections a server has, and whether it accepts another one. Any thread; a server has one ledger,
// which outlives the connections.
//
// A full server closes its oldest untrusted connection for each new one, so that connections from many
// addresses cannot keep members out: a member has time for its first request until as many other connections
// arrive as the server accepts.

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
  // The place of one connection; the destructor frees it. Movable; an empty one means that the connection is
  // rejected.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept;
    Place& operator=(Place&&) = delete;
    ~Place();
    [[nodiscard]] bool has_value() const { return ledger_ != nullptr; }
    [[nodiscard]] bool is_trusted() const { return is_trusted_; }
    // The connection has had a request that was authorised or answered with success. Any thread.
    void Trust();

   private:
    friend class ConnectionLedger;
    ConnectionLedger* ledger_ = nullptr;
    std::string peer_;
    int64_t number_ = 0;
    std::atomic<bool> is_trusted_ = false;
  };

  // `open_files` limits the number of all connections further.
  ConnectionLedger(const ConnectionLimits& limits, std::size_t open_files);

  // Empty if the server accepts no connection of this address now. This is logged once, until the address has
  // no connections left or the server is at most half full. `close` closes the connection soon, while it has
  // its place; a later Admit may call it, at most once.
  [[nodiscard]] Place Admit(const std::string& peer, std::function<void()> close);

 private:
  struct Count {
    std::size_t all = 0;
    std::size_t untrusted = 0;
    bool is_refused = false;
  };
  [[nodiscard]] bool MayConnect(const std::string& peer) LOCKSTEP_REQUIRES(mutex_);
  // A function that closes the oldest untrusted connection; empty if none may be closed.
  [[nodiscard]] std::function<void()> Displace() LOCKSTEP_REQUIRES(mutex_);
  void Trust(const Place& place);
  void End(const Place& place);

  const ConnectionLimits limits_;
  Mutex mutex_;
  std::size_t all_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t next_number_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  // Functions that close untrusted connections, by number: oldest first.
  std::map<int64_t, std::function<void()>> untrusted_ LOCKSTEP_GUARDED_BY(mutex_);
  std::set<int64_t> displaced_ LOCKSTEP_GUARDED_BY(mutex_);  // being closed
  bool is_full_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::map<std::string, Count> by_peer_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::http
