#pragma once
// What the operator is told on its command line and by its pod. Read once, by main.

#include <string>
#include <vector>

#include "operator/kube/lease.h"
#include "runtime/common/api/training_job.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

namespace lockstep {

struct OperatorConfig {
  std::string kubeconfig;  // empty: in-cluster, else $KUBECONFIG or ~/.kube/config
  bool leader_elect = false;
  std::string lease_name = "lockstep-leader";
  std::string name_space;                           // of the operator's own objects; empty: the client's
  std::vector<std::string> watch_namespaces;        // whose jobs are run; empty: all
  std::string namespace_selector;                   // of labels; whose jobs are run; empty: all
  std::string managed_by{api::kManagedByLockstep};  // the value of spec.managedBy of the jobs that are run
  std::string metrics_address = ":8080";
  std::string secure_metrics_address;  // of /metrics alone, for those who may; empty: everybody may
  std::string rendezvous_address = ":29400";
  std::string rendezvous_url;  // as workers reach it
  // At most one; neither: plain HTTP, only with an http:// URL.
  std::string tls_secret;          // of the operator's own certificate
  std::string certificate_secret;  // of a certificate that somebody else keeps
  Milliseconds certificate_overlap{600'000};
  std::string launcher_image;        // of pods that run a program of the user's own
  std::string launcher_pull_policy;  // empty: as Kubernetes does by the image's tag
  int workers = 4;
  double api_qps = 1000;  // of the reconciler, on average and at once
  double api_burst = 2000;
  kube::LeaseTimings lease;
  std::string log_level = "info";
  std::string pod_name;  // from POD_NAME; empty: not in a pod
  std::string pod_ip;    // from POD_IP: where workers reach this replica by itself
};

enum class ConfigOutcome { kRun, kExit };

struct ParsedConfig {
  ConfigOutcome outcome = ConfigOutcome::kRun;  // kExit: --help or --version was printed
  OperatorConfig config;
};

// Fails with what is wrong and what would be right.
[[nodiscard]] Result<ParsedConfig> ParseConfig(int argc, const char* const* argv);
[[nodiscard]] Result<void> ValidateConfig(const OperatorConfig& config);

}  // namespace lockstep
