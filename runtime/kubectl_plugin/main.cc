// `kubectl-lockstep`, which `kubectl lockstep …` runs where it lies in PATH. It talks to the cluster through
// kubectl alone, and links neither LibTorch nor an HTTP client.

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <optional>

#include "runtime/cli/commands.h"
#include "runtime/common/base/file.h"
#include "runtime/kubectl_plugin/commands.h"

namespace {

namespace plugin = lockstep::kubectl_plugin;

constexpr int kFailed = 1;
constexpr int kMisuse = 2;

// kubectl's own flags, handed on as they came (`kubectl options`).
void AddGlobalFlags(CLI::App& app, std::vector<std::string>& flags) {
  constexpr const char* kHidden = "";
  for (const std::string name :
       {"-n,--namespace", "--context", "--kubeconfig", "--cluster", "--user", "-s,--server", "--token",
        "--as", "--as-group", "--as-uid", "--request-timeout", "--certificate-authority",
        "--client-certificate", "--client-key", "--tls-server-name", "--username", "--password",
        "--cache-dir", "-v,--v"}) {
    const auto hand_on = [&flags,
                          flag = name.substr(name.find("--"))](const std::vector<std::string>& values) {
      for (const std::string& value : values) flags.push_back(flag + "=" + value);
    };
    app.add_option_function<std::vector<std::string>>(name, hand_on)->allow_extra_args(false)->group(kHidden);
  }
  for (const char* name : {"--insecure-skip-tls-verify", "--disable-compression", "--match-server-version"}) {
    app.add_flag_callback(name, [&flags, name] { flags.emplace_back(name); })->group(kHidden);
  }
  app.footer(
      "Flags of kubectl are handed on to it: --namespace (-n), --context, --kubeconfig, --as and so on.");
}

// One verb with its arguments; `body` runs after all flags are read.
using Body = std::function<lockstep::Result<int>(const plugin::Kubectl&)>;

struct Verbs {
  CLI::App& app;
  Body chosen;

  CLI::App* Add(const char* name, const char* what, Body body) {
    CLI::App* verb = app.add_subcommand(name, what);
    verb->callback([this, body = std::move(body)] { chosen = body; });
    return verb;
  }
};

int Run(const Body& body, std::vector<std::string> flags) {
  const plugin::Kubectl kubectl(lockstep::EnvOr("KUBECTL", "kubectl"), std::move(flags));
  const lockstep::Result<int> code = body(kubectl);
  if (code.ok()) return *code;
  std::cout << std::flush;
  std::cerr << "kubectl lockstep: " << code.error().message << "\n";
  return kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Look at training jobs of Lockstep, and tell them what to do.", "kubectl lockstep");
  app.set_version_flag("--version", std::string("kubectl lockstep ") + LOCKSTEP_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  std::vector<std::string> flags;
  AddGlobalFlags(app, flags);
  Verbs verbs{app, {}};

  plugin::StatusArguments status;
  CLI::App* verb = verbs.Add("status", "How a job does; without a name, a table of all",
                             [&](const auto& kubectl) { return plugin::Status(kubectl, status); });
  auto* status_job = verb->add_option("JOB", status.job, "name of the job");
  verb->add_flag("-w,--watch", status.watch, "draw it anew when it changes, until it ends")
      ->needs(status_job);
  verb->add_flag("-A,--all-namespaces", status.all_namespaces, "jobs of all namespaces")
      ->excludes(status_job);

  const auto add_job = [&](std::string& job) { verb->add_option("JOB", job, "name of the job")->required(); };

  plugin::LogsArguments logs;
  verb = verbs.Add("logs", "What a rank wrote, or all pods",
                   [&](const auto& kubectl) { return plugin::Logs(kubectl, logs); });
  add_job(logs.job);
  auto* rank =
      verb->add_option("--rank", logs.rank, "which [0]")->check(CLI::NonNegativeNumber)->type_name("N");
  verb->add_flag("--all", logs.all, "all pods, each line with its pod")->excludes(rank);
  verb->add_flag("-f,--follow", logs.follow, "go on with what comes");
  verb->add_flag("-p,--previous", logs.previous, "of the pod's container before, where it was started again");

  std::string job;
  verb = verbs.Add("suspend", "Save a checkpoint and take the pods away, until it is resumed",
                   [&](const auto& kubectl) { return plugin::Suspend(kubectl, job); });
  add_job(job);
  verb = verbs.Add("resume", "Let a suspended job go on",
                   [&](const auto& kubectl) { return plugin::Resume(kubectl, job); });
  add_job(job);

  int32_t replicas = 0;
  verb = verbs.Add("scale", "Change the number of pods, within spec.elasticPolicy",
                   [&](const auto& kubectl) { return plugin::Scale(kubectl, job, replicas); });
  add_job(job);
  verb->add_option("N", replicas, "worker pods")->required()->check(CLI::Range(1, 10'000));

  plugin::CheckpointArguments checkpoint;
  verb = verbs.Add("checkpoint", "Save a checkpoint now",
                   [&](const auto& kubectl) { return plugin::Checkpoint(kubectl, checkpoint); });
  add_job(checkpoint.job);
  auto* wait = verb->add_flag("--wait", checkpoint.wait, "until it is stored");
  verb->add_option_function<int>(
          "--timeout", [&](const int& seconds) { checkpoint.timeout = std::chrono::seconds(seconds); },
          "seconds to wait at most [300]")
      ->check(CLI::PositiveNumber)
      ->needs(wait);

  verb = verbs.Add("top", "CPU and memory of each pod, and how fast the job is",
                   [&](const auto& kubectl) { return plugin::Top(kubectl, job); });
  add_job(job);

  std::vector<std::string> manifests;
  verb = verbs.Add("validate", "Say what is wrong with a manifest, or that it is valid; needs no cluster",
                   [&](const auto&) { return lockstep::cli::Validate(manifests); });
  verb->add_option("FILE", manifests, "DistributedTrainingJob manifest (YAML or JSON)")->required();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << "kubectl lockstep: " << error.what() << "\n\n" << app.help();
    return kMisuse;
  }
  return Run(verbs.chosen, std::move(flags));
}
