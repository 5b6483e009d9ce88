#pragma once
// Asks the metadata service of the cloud whether the machine is about to be taken away, as spot and preemptible
// machines are:
//   AWS    spot/instance-action, by a session of IMDSv2: two minutes before
//   GCP    instance/preempted: when the machine is being stopped
//   Azure  Scheduled Events, Preempt and Terminate of this machine: 30 s before, or as configured
// AWS_EC2_METADATA_SERVICE_ENDPOINT and GCE_METADATA_HOST name another address, as for the clouds' own clients.

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "runtime/common/base/clock.h"
#include "runtime/common/http/transport.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::launch {

// What the service of that cloud says now; nothing: the machine stays. An error names the request that failed.
[[nodiscard]] Result<std::optional<protocol::NodeDeparts>> LookForDeparture(protocol::InstanceMetadata cloud,
                                                                            http::HttpTransport& service,
                                                                            std::stop_token stop);

// Looks every five seconds on its own thread, once a minute while the service does not answer, until it has found a
// departure, which it reports once on that thread.
class DepartureWatch {
 public:
  [[nodiscard]] static Result<std::unique_ptr<DepartureWatch>> Start(
      protocol::InstanceMetadata cloud, std::function<void(const protocol::NodeDeparts&)> report);

 private:
  DepartureWatch(protocol::InstanceMetadata cloud, std::unique_ptr<http::HttpTransport> service,
                 std::function<void(const protocol::NodeDeparts&)> report);
  void Run(const std::stop_token& stop);

  const protocol::InstanceMetadata cloud_;
  const std::unique_ptr<http::HttpTransport> service_;
  const std::function<void(const protocol::NodeDeparts&)> report_;
  std::jthread thread_;  // last: joins before the other members are destroyed
};

}  // namespace lockstep::launch
