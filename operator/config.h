#pragma once
// The settings of the operator: command line, environment of its pod and defaults. Read once, by main.

#include <string>
#include <vector>

#include "operator/kube/lease.h"
#include "runtime/common/api/training_job.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

namespace lockstep {

struct OperatorConfig {
  std::string kubeconfig;  // empty: the service account of the pod, else $KUBECONFIG or ~/.kube/config
  bool leader_elect = false;
  std::string lease_name = "lockstep-leader";
  std::string name_space;  // namespace of the operator's own objects; empty: that of the client configuration
  std::vector<std::string> watch_namespaces;  // the operator runs the jobs of these namespaces; empty: all
  std::string namespace_selector;  // label selector of namespaces whose jobs the operator runs; empty: all
  std::string managed_by{api::kManagedByLockstep};  // the value of spec.managedBy of the jobs that are run
  std::string metrics_address = ":8080";
  // host:port of a separate TLS server for /metrics that checks tokens; empty: /metrics needs no token
  std::string secure_metrics_address;
  std::string rendezvous_address = ":29400";
  std::string rendezvous_url;  // the URL by which workers reach the rendezvous
  // Set at most one of the next two. With neither the rendezvous serves plain HTTP, which needs an http://
  // URL.
  std::string tls_secret;  // Secret of a certificate that the operator makes and renews
  // Secret of a certificate that is managed outside of the operator, for example by cert-manager
  std::string certificate_secret;
  Milliseconds certificate_overlap{600'000};
  std::string launcher_image;        // image with `lockstep`, for pods whose own image does not contain it
  std::string launcher_pull_policy;  // empty: the default of Kubernetes, which depends on the image's tag
  int workers = 4;
  double api_qps = 1000;  // limit of the reconciler's requests: average per second, and burst
  double api_burst = 2000;
  kube::LeaseTimings lease;
  std::string log_level = "info";
  std::string pod_name;  // from POD_NAME; empty: the operator does not run in a pod
  std::string pod_ip;    // from POD_IP: the address by which workers reach this replica
};

enum class ConfigOutcome { kRun, kExit };

struct ParsedConfig {
  ConfigOutcome outcome = ConfigOutcome::kRun;  // kExit: --help or --version was printed
  OperatorConfig config;
};

// An error says which flag is wrong and which values are valid.
[[nodiscard]] Result<ParsedConfig> ParseConfig(int argc, const char* const* argv);
[[nodiscard]] Result<void> ValidateConfig(const OperatorConfig& config);

}  // namespace lockstep
