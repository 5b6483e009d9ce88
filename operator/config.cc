#include "operator/config.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "runtime/common/base/file.h"
#include "runtime/common/command_line/usage.h"

namespace lockstep {
namespace {

constexpr int kMaxWorkers = 64;

void AddSeconds(CLI::App& app, const std::string& flag, Milliseconds& target, const std::string& what) {
  app.add_option_function<int>(
         flag, [&target](const int& seconds) { target = std::chrono::seconds(seconds); }, what)
      ->default_str(std::to_string(target.count() / 1000));
}

void AddOptions(CLI::App& app, OperatorConfig& config) {
  // The chart's extraArgs come last and may repeat a flag.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--kubeconfig", config.kubeconfig,
                 "Kubeconfig file; without it the pod's service account is used");
  app.add_flag("--leader-elect", config.leader_elect,
               "Share the jobs with other replicas by a Lease; needed with several replicas");
  app.add_option("--lease-name", config.lease_name, "Name of the Lease by which replicas share the jobs")
      ->capture_default_str();
  app.add_option("--namespace", config.name_space, "Namespace of the Lease and of the TLS Secret");
  app.add_option("--watch-namespaces", config.watch_namespaces,
                 "Run only the jobs of these namespaces, separated by commas")
      ->delimiter(',');
  app.add_option("--namespace-selector", config.namespace_selector,
                 "Run only the jobs of namespaces with these labels, as in kubectl get --selector");
  app.add_option("--managed-by", config.managed_by,
                 "Run only the jobs with this spec.managedBy; the default includes jobs without it")
      ->capture_default_str();
  app.add_option("--metrics-address", config.metrics_address, "Address for /metrics, /healthz and /readyz")
      ->capture_default_str();
  app.add_option("--secure-metrics-address", config.secure_metrics_address,
                 "Separate address for /metrics: over HTTPS, for users whom the API server allows to get it");
  app.add_option("--rendezvous-address", config.rendezvous_address, "Address for the rendezvous")
      ->capture_default_str();
  app.add_option("--rendezvous-url", config.rendezvous_url, "URL by which workers reach the rendezvous")
      ->required();
  app.add_option("--tls-secret", config.tls_secret,
                 "Secret of the rendezvous' certificate, which the operator makes and renews");
  app.add_option("--certificate-secret", config.certificate_secret,
                 "Secret of the rendezvous' certificate (tls.crt, tls.key, ca.crt), which is managed by "
                 "others, such as cert-manager; instead of --tls-secret");
  AddSeconds(app, "--certificate-overlap-seconds", config.certificate_overlap,
             "How long workers trust the authority of a new certificate in addition to the previous one "
             "before the new certificate is served");
  app.add_option(
      "--launcher-image", config.launcher_image,
      "Image from which an init container copies lockstep into pods that run a program of the user's own");
  app.add_option("--launcher-pull-policy", config.launcher_pull_policy,
                 "When that image is pulled: Always, IfNotPresent or Never")
      ->check(CLI::IsMember({"Always", "IfNotPresent", "Never"}));
  app.add_option("--workers", config.workers, "Jobs reconciled at once")->capture_default_str();
  app.add_option("--kube-api-qps", config.api_qps, "Requests of the reconciler to the API server each second")
      ->capture_default_str();
  app.add_option("--kube-api-burst", config.api_burst, "Requests of the reconciler at once")
      ->capture_default_str();
  AddSeconds(app, "--lease-duration-seconds", config.lease.duration,
             "How long other replicas wait after the last renewal");
  AddSeconds(app, "--lease-renew-deadline-seconds", config.lease.renew_deadline,
             "A replica exits after this long without a renewal");
  AddSeconds(app, "--lease-retry-period-seconds", config.lease.retry_period, "How often a replica renews");
  app.add_option("--log-level", config.log_level, "debug, info, warning or error")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
}

Error Wrong(const std::string& message) { return {ErrorCode::kInvalidArgument, message}; }

Result<void> ValidateCertificate(const OperatorConfig& config, bool is_https) {
  const bool has_own = !config.tls_secret.empty();
  const bool has_other = !config.certificate_secret.empty();
  if (has_own && has_other)
    return Wrong("--tls-secret and --certificate-secret exclude each other: leave one out");
  if (is_https && !has_own && !has_other)
    return Wrong("--tls-secret or --certificate-secret is required with an https:// --rendezvous-url");
  if (!is_https && (has_own || has_other)) {
    return Wrong(std::string(has_own ? "--tls-secret" : "--certificate-secret") +
                 " needs an https:// --rendezvous-url");
  }
  if (config.certificate_overlap < Milliseconds(0))
    return Wrong("--certificate-overlap-seconds must be at least 0");
  return {};
}

}  // namespace

Result<ParsedConfig> ParseConfig(int argc, const char* const* argv) {
  ParsedConfig parsed;
  OperatorConfig& config = parsed.config;
  CLI::App app("Lockstep operator: runs DistributedTrainingJobs", "lockstep-operator");
  app.set_version_flag("--version", LOCKSTEP_VERSION);
  app.footer(
      "Example, outside of a cluster; HOST is this machine, as the pods reach it:\n"
      "  lockstep-operator --kubeconfig ~/.kube/config --rendezvous-url http://HOST:29400");
  AddOptions(app, config);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      return Error{ErrorCode::kInvalidArgument, command_line::UsageProblem(app, error)};
    (void)app.exit(error);  // prints the help or the version
    parsed.outcome = ConfigOutcome::kExit;
    return parsed;
  }
  config.pod_name = EnvOr("POD_NAME", "");
  config.pod_ip = EnvOr("POD_IP", "");
  LOCKSTEP_TRY(ValidateConfig(config));
  return parsed;
}

Result<void> ValidateConfig(const OperatorConfig& config) {
  const bool is_https = config.rendezvous_url.starts_with("https://");
  const bool is_http = config.rendezvous_url.starts_with("http://");
  if (!is_https && !is_http)
    return Wrong("--rendezvous-url must begin with https:// (or http:// for development)");
  LOCKSTEP_TRY(ValidateCertificate(config, is_https));
  if (!config.watch_namespaces.empty() && !config.namespace_selector.empty())
    return Wrong("--watch-namespaces and --namespace-selector exclude each other: leave one out");
  if (config.managed_by.find('/') == std::string::npos)
    return Wrong("--managed-by must be a name with a domain in front, as in lockstep.dev/operator");
  if (config.workers < 1 || config.workers > kMaxWorkers) {
    return Wrong("--workers must be from 1 to " + std::to_string(kMaxWorkers));
  }
  if (config.api_qps < 1 || config.api_burst < 1) {
    return Wrong("--kube-api-qps and --kube-api-burst must be at least 1");
  }
  return kube::ValidateTimings(config.lease);
}

}  // namespace lockstep
