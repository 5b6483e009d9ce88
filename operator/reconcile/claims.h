#pragma once
// Whether the installation that has claimed a job still exists, by its Lease: its operators renew it as long as
// they run. Any thread.

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "operator/kube/client.h"
#include "operator/kube/lease.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::reconcile {

class Claims {
 public:
  // How often a Lease is read. A job that another installation has claimed is looked at again as often.
  static constexpr std::chrono::seconds kPeriod{30};

  Claims(kube::KubeClient& client, const Clock& clock) : client_(client), clock_(clock) {}

  // True if the Lease ("namespace/name") has not been renewed for 20 times its duration while this process
  // observed it, as of a read in this call. The clocks of two machines are not compared. A Lease that does not
  // exist is not renewed; one that cannot be read may be.
  [[nodiscard]] bool IsAbandoned(const std::string& installation);

 private:
  struct Observation {
    std::string renewed;
    SteadyTime since{};  // when this process first read that
    SteadyTime read{};
    bool is_abandoned = false;
  };
  // Nothing if it cannot be read.
  [[nodiscard]] std::optional<kube::LeaseRecord> Read(const std::string& installation) const;

  kube::KubeClient& client_;
  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Observation> observed_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::reconcile
