#pragma once
// Lets the ranks of a round report through the round's store that their shards of a checkpoint are stored. An
// upload may outlive the round. Called from the checkpointer's thread.

#include <memory>

#include "runtime/checkpoint/checkpointer.h"
#include "runtime/comm/communicator.h"
#include "runtime/common/base/clock.h"

namespace lockstep::train {

class RoundExchange final : public checkpoint::ShardExchange {
 public:
  // `communicator` shows whether the round is broken; it is not kept alive.
  RoundExchange(const std::shared_ptr<comm::Communicator>& communicator, const Clock& clock)
      : store_(communicator->store()), communicator_(communicator), clock_(clock) {}

  [[nodiscard]] Result<void> Publish(const std::string& key, const std::string& value) override;
  [[nodiscard]] Result<std::string> Wait(const std::string& key, std::chrono::milliseconds limit) override;
  [[nodiscard]] bool IsOver() override;

 private:
  const std::shared_ptr<comm::RoundStore> store_;
  const std::weak_ptr<comm::Communicator> communicator_;
  const Clock& clock_;
};

}  // namespace lockstep::train
