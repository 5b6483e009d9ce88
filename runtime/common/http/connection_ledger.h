#pragma once
// Which connections a server has, and whether it takes another. Any thread; a server has one, which outlives
// what it admits.

#include <cstddef>
#include <map>
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
    // The connection has had a request that was answered with success.
    void Trust();

   private:
    friend class ConnectionLedger;
    Place(ConnectionLedger& ledger, std::string peer) : ledger_(&ledger), peer_(std::move(peer)) {}
    ConnectionLedger* ledger_ = nullptr;
    std::string peer_;
    bool is_trusted_ = false;
  };

  // `open_files` bounds the limit of all connections further.
  ConnectionLedger(const ConnectionLimits& limits, std::size_t open_files);

  // Empty where the server takes no connection of this address now. The log says so once, until the address has
  // no connection left, or the server half of what it takes.
  [[nodiscard]] Place Admit(const std::string& peer);

 private:
  struct Count {
    std::size_t all = 0;
    std::size_t untrusted = 0;
    bool is_refused = false;
  };
  void Trust(const std::string& peer);
  void End(const std::string& peer, bool is_trusted);

  const ConnectionLimits limits_;
  Mutex mutex_;
  std::size_t all_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool is_full_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::map<std::string, Count> by_peer_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::http
