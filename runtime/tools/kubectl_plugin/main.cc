// `kubectl-lockstep`, which `kubectl lockstep …` runs if it is in PATH. It uses only kubectl to reach the
// cluster, and links neither LibTorch nor an HTTP client.

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <optional>
#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"
#include "runtime/common/command_line/completion.h"
#include "runtime/common/command_line/usage.h"
#include "runtime/tools/cli/commands.h"
#include "runtime/tools/kubectl_plugin/commands.h"
#include "runtime/tools/kubectl_plugin/lookup.h"

namespace {

namespace command_line = lockstep::command_line;
namespace plugin = lockstep::kubectl_plugin;

constexpr int kFailed = 1;
constexpr const char* kJob = "JOB";
constexpr const char* kManifest = "DistributedTrainingJob manifest, YAML or JSON; - for standard input";

// kubectl's own flags (`kubectl options`), passed on unchanged.
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
      "Flags of kubectl are passed on to it: --namespace (-n), --context, --kubeconfig, --as and so on.\n"
      "`kubectl lockstep COMMAND --help` has the arguments of a command and an example.");
}

// The targets of the flags; they outlive the commands.
struct Arguments {
  plugin::SubmitArguments submit;
  plugin::StatusArguments status;
  plugin::LogsArguments logs;
  plugin::ScalingArguments scaling;
  plugin::CheckpointArguments checkpoint;
  std::string job;
  std::vector<std::string> jobs;
  std::vector<std::string> files;
  int32_t replicas = 0;
  int steps = 5;
};

using Body = std::function<lockstep::Result<int>(const plugin::Kubectl&)>;

// The commands. `chosen` is the selected one, which runs after all flags are parsed.
struct Commands {
  CLI::App& app;
  Body chosen{};

  CLI::App* Add(const char* name, const char* what, Body body) {
    CLI::App* command = app.add_subcommand(name, what);
    command->callback([this, body = std::move(body)] { chosen = body; });
    return command;
  }
};

CLI::Option* AddJob(CLI::App* command, std::string& job) {
  return command->add_option(kJob, job, "name of the job")->type_name("");
}

CLI::Option* AddJsonOutput(CLI::App* command, bool& as_json, const char* content) {
  return command
      ->add_option_function<std::string>(
          "-o,--output", [&as_json](const std::string& format) { as_json = format == "json"; },
          std::string("for programs: ") + content)
      ->check(CLI::IsMember({"json"}));
}

std::string IsDuration(const std::string& text) {
  const auto duration = lockstep::ParseDuration(text);
  return duration.ok() ? "" : duration.error().message;
}

void AddManifestCommands(Commands& commands, Arguments& arguments) {
  CLI::App* submit =
      commands.Add("submit", "Create the jobs of manifests, or update them",
                   [&](const auto& kubectl) { return plugin::Submit(kubectl, arguments.submit); });
  submit->add_option("FILE", arguments.submit.files, "manifest, YAML or JSON; - for standard input")
      ->type_name("")
      ->required();
  submit->add_flag("--wait", arguments.submit.wait, "show each job until it ends");
  submit->footer(
      "Like kubectl apply --server-side, for all objects of the files. With --wait it exits with 0\nif all "
      "jobs complete, with 1 if one fails.\n\n"
      "Example:\n  kubectl lockstep submit job.yaml --wait");

  CLI::App* validate =
      commands.Add("validate", "Check manifests and say what is wrong with them; needs no cluster",
                   [&](const auto&) { return lockstep::cli::Validate(arguments.files); });
  validate->add_option("FILE", arguments.files, kManifest)->type_name("")->required();
  validate->footer("Example:\n  kubectl lockstep validate job.yaml other.yaml");
}

void AddViewCommands(Commands& commands, Arguments& arguments) {
  plugin::StatusArguments& status = arguments.status;
  CLI::App* command = commands.Add("status", "Show a job, or all jobs as a table",
                                   [&](const auto& kubectl) { return plugin::Status(kubectl, status); });
  CLI::Option* job = AddJob(command, status.job);
  CLI::Option* watch =
      command->add_flag("-w,--watch", status.watch, "show it again when it changes, until it ends")
          ->needs(job);
  command->add_flag("-A,--all-namespaces", status.all_namespaces, "jobs of all namespaces")->excludes(job);
  AddJsonOutput(command, status.as_json, "the object, and its pods with their ranks")->excludes(watch);
  command->footer(
      "With --watch it exits with 0 if the job completes, with 1 if it fails.\n\n"
      "Examples:\n  kubectl lockstep status\n  kubectl lockstep status fashion-mnist --watch");

  command = commands.Add("events", "Show the events of a job and of its pods, oldest first",
                         [&](const auto& kubectl) { return plugin::Events(kubectl, arguments.job); });
  AddJob(command, arguments.job)->required();
  command->footer("Example:\n  kubectl lockstep events fashion-mnist");

  plugin::LogsArguments& logs = arguments.logs;
  command = commands.Add("logs", "Print the output of a rank, or of all pods",
                         [&](const auto& kubectl) { return plugin::Logs(kubectl, logs); });
  AddJob(command, logs.job)->required();
  CLI::Option* rank = command->add_option("--rank", logs.rank, "which [0]")
                          ->type_name("N")
                          ->check(command_line::MustNotBeNegative);
  command->add_flag("--all", logs.all, "all pods, each line with its pod")->excludes(rank);
  command->add_flag("-f,--follow", logs.follow, "stream new lines until the pod ends");
  command->add_flag("-p,--previous", logs.previous, "of the previous container instance");
  command->footer("Example:\n  kubectl lockstep logs fashion-mnist --rank 1 --follow");

  command = commands.Add("top", "Show CPU and memory of each pod, and the speed of the job",
                         [&](const auto& kubectl) { return plugin::Top(kubectl, arguments.job); });
  AddJob(command, arguments.job)->required();
  command->footer("Needs a metrics-server in the cluster.\n\nExample:\n  kubectl lockstep top fashion-mnist");

  command =
      commands.Add("scaling", "Show how fast a job trained with each number of ranks, and recommend one",
                   [&](const auto& kubectl) { return plugin::Scaling(kubectl, arguments.scaling); });
  AddJob(command, arguments.scaling.job)->required();
  AddJsonOutput(command, arguments.scaling.as_json, "the sizes and the recommendation");
  command->footer("Example:\n  kubectl lockstep scaling fashion-mnist");
}

void AddChangeCommands(Commands& commands, Arguments& arguments) {
  CLI::App* command =
      commands.Add("suspend", "Save a checkpoint and remove the pods, until the job is resumed",
                   [&](const auto& kubectl) { return plugin::Suspend(kubectl, arguments.job); });
  AddJob(command, arguments.job)->required();
  command->footer("Example:\n  kubectl lockstep suspend fashion-mnist");

  command = commands.Add("resume", "Start a suspended job again, from its checkpoint",
                         [&](const auto& kubectl) { return plugin::Resume(kubectl, arguments.job); });
  AddJob(command, arguments.job)->required();
  command->footer("Example:\n  kubectl lockstep resume fashion-mnist");

  command = commands.Add(
      "scale", "Change the number of pods, within spec.elasticPolicy",
      [&](const auto& kubectl) { return plugin::Scale(kubectl, arguments.job, arguments.replicas); });
  AddJob(command, arguments.job)->required();
  command->add_option("N", arguments.replicas, "worker pods")
      ->type_name("")
      ->required()
      ->check(CLI::Range(1, 10'000).description(""));
  command->footer("Example:\n  kubectl lockstep scale fashion-mnist 4");

  command = commands.Add("delete", "Delete jobs and wait until their pods have ended",
                         [&](const auto& kubectl) { return plugin::Delete(kubectl, arguments.jobs); });
  command->add_option(kJob, arguments.jobs, "names of the jobs")->type_name("")->required();
  command->footer(
      "Checkpoints are kept, unless spec.checkpoint.deleteWithJob is true.\n\n"
      "Example:\n  kubectl lockstep delete fashion-mnist");
}

void AddRequestCommands(Commands& commands, Arguments& arguments) {
  plugin::CheckpointArguments& checkpoint = arguments.checkpoint;
  CLI::App* command = commands.Add("checkpoint", "Save a checkpoint now", [&](const auto& kubectl) {
    return plugin::Checkpoint(kubectl, checkpoint);
  });
  AddJob(command, checkpoint.job)->required();
  CLI::Option* wait = command->add_flag("--wait", checkpoint.wait, "wait until it is stored");
  command
      ->add_option_function<std::string>(
          "--timeout", [&](const std::string& text) { checkpoint.timeout = *lockstep::ParseDuration(text); },
          "how long to wait at most, such as 90s, 5m or 1h [5m]")
      ->type_name("DURATION")
      ->check(IsDuration)
      ->needs(wait);
  command->footer("Example:\n  kubectl lockstep checkpoint fashion-mnist --wait --timeout 10m");

  command = commands.Add("profile", "Record the next steps of all ranks as traces", [&](const auto& kubectl) {
    return plugin::Profile(kubectl, arguments.job, arguments.steps);
  });
  AddJob(command, arguments.job)->required();
  command->add_option("--steps", arguments.steps, "how many, at most 100 [5]")
      ->type_name("N")
      ->check(CLI::Range(1, 100).description(""));
  command->footer(
      "The traces are stored with the checkpoints; chrome://tracing and Perfetto show them.\n\n"
      "Example:\n  kubectl lockstep profile fashion-mnist --steps 10");
}

int Run(const Body& body, std::vector<std::string> flags) {
  const plugin::Kubectl kubectl(lockstep::EnvOr("KUBECTL", "kubectl"), std::move(flags));
  const lockstep::Result<int> code = body(kubectl);
  if (code.ok()) return *code;
  std::cout << std::flush;
  std::cerr << "kubectl lockstep: " << code.error().message << "\n";
  return kFailed;
}

// For the namespace and cluster of the flags. Empty if kubectl is slow, because a user waits for the
// completion.
std::vector<std::string> NamesOfJobs(const std::vector<std::string>& flags) {
  using namespace std::chrono_literals;
  std::string output;
  const auto listed = plugin::Kubectl(lockstep::EnvOr("KUBECTL", "kubectl"), flags)
                          .Stream(
                              {"get", plugin::kJobs, "--output=jsonpath={.items[*].metadata.name}"},
                              [&](std::string_view bytes) {
                                output += bytes;
                                return true;
                              },
                              std::chrono::steady_clock::now() + 3s);
  return listed.ok() && !output.empty() ? lockstep::Split(output, ' ') : std::vector<std::string>();
}

int Complete(CLI::App& app, const std::vector<std::string>& words, const std::vector<std::string>& flags) {
  try {  // sets `flags` from the incomplete command line
    std::vector<std::string> typed(words.rbegin() + (words.empty() ? 0 : 1), words.rend());
    app.parse(typed);
  } catch (const CLI::ParseError&) {
  }
  std::cout << command_line::CompletionsFor(app, words, [&](const std::string& argument) {
    return argument == kJob ? std::optional(NamesOfJobs(flags)) : std::nullopt;
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Submit training jobs of Lockstep, watch them and change them.", "kubectl lockstep");
  app.set_version_flag("--version", std::string("kubectl lockstep ") + LOCKSTEP_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  std::vector<std::string> flags;
  AddGlobalFlags(app, flags);
  Arguments arguments;
  Commands commands{app};
  AddManifestCommands(commands, arguments);
  AddViewCommands(commands, arguments);
  AddChangeCommands(commands, arguments);
  AddRequestCommands(commands, arguments);
  if (argc > 1 && argv[1] == command_line::kCompleteCommand)
    return Complete(app, {argv + 2, argv + argc}, flags);
  if (const auto code = command_line::ParseArguments(app, argc, argv)) return *code;
  return Run(commands.chosen, std::move(flags));
}
