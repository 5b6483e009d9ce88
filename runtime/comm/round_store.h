#pragma once
// What the ranks of a round write down for each other.

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/common/base/result.h"

namespace c10d {
class Store;
}

namespace lockstep::comm {

// Key-value store of one round, served by its rank 0. Any thread. It outlives the communicator, so that
// background work can end after the round.
class RoundStore {
 public:
  virtual ~RoundStore() = default;
  [[nodiscard]] virtual Result<void> Set(const std::string& key, const std::string& value) = 0;
  // Does not wait: returns nothing if the key does not exist yet.
  [[nodiscard]] virtual Result<std::optional<std::string>> Get(const std::string& key) = 0;
  // Adds to a number, initially 0, and returns the new value. Waits as long as the connection lasts: see
  // SharedCounter.
  [[nodiscard]] virtual Result<int64_t> Add(const std::string& key, int64_t amount) = 0;
};

[[nodiscard]] std::shared_ptr<RoundStore> MakeRoundStore(c10::intrusive_ptr<c10d::Store> store);

}  // namespace lockstep::comm
