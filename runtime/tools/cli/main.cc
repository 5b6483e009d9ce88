// `lockstep`: the command line and the worker pod's PID 1. Links no LibTorch, so it starts in milliseconds.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string_view>
#include <utility>

#include "runtime/common/api/scaling_advice.h"
#include "runtime/common/base/open_files.h"
#include "runtime/common/base/processors.h"
#include "runtime/common/command_line/completion.h"
#include "runtime/common/command_line/usage.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/launch/process/process.h"
#include "runtime/launch/process/signals.h"
#include "runtime/tools/cli/commands.h"
#include "runtime/tools/cli/scaling_job.h"
#include "runtime/tools/cli/torchrun_line.h"

namespace {

namespace cli = lockstep::cli;
namespace command_line = lockstep::command_line;

constexpr const char* kCheckpoint = "checkpoint";
constexpr const char* kRun = "run";
constexpr const char* kWorker = "worker";
constexpr const char* kProgram = "program";
constexpr const char* kHidden = "";
constexpr const char* kManifest = "DistributedTrainingJob manifest, YAML or JSON";

// The targets of the flags; they outlive the commands.
struct Arguments {
  cli::RunArguments run;
  std::vector<std::string> files;
  cli::ScalingArguments scaling;
  cli::MemoryArguments memory;
  cli::ConvertArguments convert;
  cli::PlotArguments plot;
  std::string shell;
  std::string folder;
};

// The commands. `chosen` is the selected one, which runs after all flags are parsed.
struct Commands {
  CLI::App& app;
  std::function<int()> chosen{};

  CLI::App* Add(const std::string& name, const std::string& what, std::function<int()> body) {
    CLI::App* command = app.add_subcommand(name, what);
    command->callback([this, body = std::move(body)] { chosen = body; });
    return command;
  }
};

void AddRun(Commands& commands, cli::RunArguments& arguments) {
  CLI::App* run = commands.Add(
      kRun,
      "Train without Kubernetes, on this machine or on each node of a Slurm job: a manifest, or `-- COMMAND`",
      [&] { return cli::Run(arguments); });
  run->add_option("FILE", arguments.manifest, kManifest)->type_name("");
  run->add_option("--replicas", arguments.replicas, "worker processes, instead of spec.worker.replicas")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000).description(""));
  run->add_option("--folder", arguments.folder, "logs and checkpoints [run/<name of the job>]")
      ->type_name("FOLDER");
  run->add_option("--checkpoint-uri", arguments.checkpoint_uri,
                  "where checkpoints go, instead of spec.checkpoint.uri [in the folder]")
      ->type_name("URI");
  run->add_option("--nproc,--nproc-per-node", arguments.nproc,
                  "processes of a COMMAND in each worker; a manifest has spec.nprocPerNode [1]")
      ->type_name("N")
      ->check(CLI::Range(1, 64).description(""));
  run->add_option(
         "--max-restarts", arguments.max_restarts,
         "restarts of a COMMAND in place without a new step between; a manifest has spec.failurePolicy [3]")
      ->type_name("N")
      ->check(CLI::Range(0, 1000).description(""));
  run->add_flag("--no-prefix", arguments.no_prefix,
                "show what a program writes without \"[rank N]\" before each line");
  run->footer(
      "A program of your own gets torchrun's environment; what it writes is shown here and kept in the "
      "logs. A line of torchrun works with its name exchanged: its flags, a script and the script's "
      "arguments.\n\n"
      "Examples:\n"
      "  lockstep run crds/examples/minimal.yaml\n"
      "  lockstep run --nproc-per-node 4 train.py --epochs 3\n"
      "  lockstep run --nproc 4 -- ./my-program");
}

std::string MustBeReplicas(const std::string& text) {
  const auto replicas = cli::ReplicasFrom(text);
  return replicas.ok() ? "" : replicas.error().message;
}

void AddReplicas(CLI::App& command, std::vector<int>& replicas, const char* what) {
  command
      .add_option_function<std::string>(
          "--replicas", [&replicas](const std::string& text) { replicas = *cli::ReplicasFrom(text); }, what)
      ->type_name("N,N,...")
      ->required()
      ->check(MustBeReplicas);
}

void AddJsonOutput(CLI::App& command, bool& as_json, const char* what) {
  command
      .add_option_function<std::string>(
          "-o,--output", [&as_json](const std::string& format) { as_json = format == "json"; }, what)
      ->check(CLI::IsMember({"json"}));
}

void AddScaling(Commands& commands, cli::ScalingArguments& arguments) {
  CLI::App* scaling = commands.Add(
      "scaling",
      "Measure how fast a job trains on this machine with each number of workers, and recommend one",
      [&] { return cli::Scaling(arguments); });
  scaling->add_option("FILE", arguments.manifest, kManifest)->type_name("")->required();
  AddReplicas(*scaling, arguments.replicas, "numbers of worker processes to measure");
  scaling->add_option("--steps", arguments.steps, "steps to measure with each, after a few to warm up [30]")
      ->type_name("N")
      ->check(CLI::Range(static_cast<int>(lockstep::api::kFewestMeasuredSteps), 1'000'000).description(""));
  AddJsonOutput(*scaling, arguments.as_json, "for programs: the sizes and the recommendation");
  scaling->footer(
      "Nothing is kept: no checkpoint is read or written. Exits with 1 if a size fails.\n\n"
      "Example:\n  lockstep scaling job.yaml --replicas 1,2,4");
}

void AddMemory(Commands& commands, cli::MemoryArguments& arguments) {
  CLI::App* memory = commands.Add(
      "memory",
      "Say which memory a rank needs for model and optimizer, with each strategy and number of pods",
      [&] { return cli::Memory(arguments); });
  memory->add_option("FILE", arguments.manifest, kManifest)->type_name("")->required();
  AddReplicas(*memory, arguments.replicas, "numbers of worker pods");
  AddJsonOutput(*memory, arguments.as_json, "for programs: bytes");
  memory->footer(
      "By arithmetic from the shapes of the model, which is made in the memory of this machine; nothing is "
      "trained. Activations are not counted. UNDO is kept until a step, or a window of steps, is complete; "
      "GATHERED exists for a moment: layers in use, and gradients that are sent and received.\n\n"
      "Example:\n  lockstep memory job.yaml --replicas 1,8,64");
}

void AddManifestCommands(Commands& commands, Arguments& arguments) {
  CLI::App* validate = commands.Add("validate", "Check manifests and say what is wrong with them",
                                    [&] { return cli::Validate(arguments.files); });
  validate->add_option("FILE", arguments.files, std::string(kManifest) + "; - for standard input")
      ->type_name("")
      ->required();
  validate->footer(
      "Exits with 0 if all jobs are valid, else with 1.\n\n"
      "Examples:\n"
      "  lockstep validate job.yaml other.yaml\n"
      "  kubectl get dtj --output=yaml | lockstep validate -");

  CLI::App* convert =
      commands.Add("convert", "Turn PyTorchJobs of Kubeflow into DistributedTrainingJobs, on standard output",
                   [&] { return cli::Convert(arguments.convert); });
  convert
      ->add_option("FILE", arguments.convert.manifest,
                   "PyTorchJob manifest, YAML or JSON; - for standard input")
      ->type_name("")
      ->required();
  convert->add_flag("--force", arguments.convert.force,
                    "write the jobs even if they would behave differently");
  convert->footer("Example:\n  lockstep convert pytorchjob.yaml > job.yaml");

  commands
      .Add("models", "List the models that a manifest can name, with their fields and defaults",
           [] { return cli::Models(); })
      ->footer("Example:\n  lockstep models");
}

void AddResultCommands(Commands& commands, Arguments& arguments) {
  CLI::App* plot =
      commands.Add("plot", "Draw loss, accuracy and speed of a training, with its rounds, as SVG or PNG",
                   [&] { return cli::Plot(arguments.plot); });
  plot->add_option("HISTORY", arguments.plot.history,
                   "history.jsonl, or the folder of checkpoints that has it")
      ->type_name("")
      ->required();
  plot->add_option("-o,--output", arguments.plot.output, "the picture to write, *.svg or *.png [history.svg]")
      ->type_name("FILE");
  plot->footer("Example:\n  lockstep plot run/minimal/checkpoints --output loss.png");

  // A separate program with its own help, so it needs no callback here.
  commands.app.add_subcommand(
      kCheckpoint,
      "List, verify, export and remove checkpoints in S3, Google Cloud Storage, Azure or a folder");
}

void AddCompletion(Commands& commands, Arguments& arguments) {
  CLI::App* completion =
      commands.Add("completion", "Print a script that completes commands and flags in a shell", [&] {
        std::cout << *command_line::CompletionScript(arguments.shell, "lockstep");
        return 0;
      });
  completion->add_option("SHELL", arguments.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(
      "Examples, each for the shell that runs:\n"
      "  source <(lockstep completion bash)\n"
      "  source <(lockstep completion zsh)\n"
      "  lockstep completion fish | source");
}

// Commands that the operator writes into pods; hidden in the help.
void AddInternalCommands(Commands& commands, Arguments& arguments, int argc,
                         const std::vector<std::string>& command) {
  commands
      .Add(kWorker, "Supervise the rank processes of a worker pod (started by the operator)",
           [&command, argc] {
             return cli::Worker({lockstep::launch::OwnCommand(argc - 1), command});
           })
      ->group(kHidden);
  commands
      .Add(kProgram, "Run a command as a rank (started by lockstep worker)",
           [&command] { return cli::Program(command); })
      ->group(kHidden);
  CLI::App* copy =
      commands.Add("copy-to", "Copy this program with its libraries (run in a pod's init container)",
                   [&] { return cli::CopyTo(arguments.folder); });
  copy->group(kHidden);
  copy->add_option("FOLDER", arguments.folder)->required();
}

cli::MachineResources ResourcesHere() {
  cli::MachineResources here{.processors = std::max(1, lockstep::ProcessorsGiven(0).usable)};
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/dev", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_gpu =
        name.starts_with("nvidia") && name.size() > 6 &&
        std::all_of(name.begin() + 6, name.end(), [](char c) { return c >= '0' && c <= '9'; });
    here.gpus += is_gpu ? 1 : 0;
  }
  return here;
}

struct Line {
  std::vector<std::string> words;    // this program's own
  std::vector<std::string> command;  // the user's, even if its words look like flags
  lockstep::launch::Environment machines;
};

// The user's command follows "--", or is the script of a line of torchrun.
lockstep::Result<Line> SplitLine(const std::vector<std::string>& words) {
  const std::string verb = words.size() > 1 ? words[1] : "";
  if (verb == kRun) {
    LOCKSTEP_TRY(auto torchrun, cli::FromTorchrun({words.begin() + 2, words.end()},
                                                  lockstep::launch::OwnEnvironment(), ResourcesHere()));
    if (torchrun.has_value()) {
      Line line{{words[0], words[1]}, std::move(torchrun->command), std::move(torchrun->machines)};
      line.words.insert(line.words.end(), torchrun->flags.begin(), torchrun->flags.end());
      return line;
    }
  }
  if (verb != kRun && verb != kWorker && verb != kProgram) return Line{.words = words};
  const auto separator = std::find(words.begin(), words.end(), "--");
  Line line{.words = {words.begin(), separator}};
  if (separator != words.end()) line.command.assign(separator + 1, words.end());
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv, argv + argc);
  const auto is = [&](std::size_t i, std::string_view word) { return i < words.size() && words[i] == word; };
  // First, because changes of signal handling would be inherited.
  if (is(1, kCheckpoint)) return cli::BecomeCheckpointTool(argv + 1);
  const bool completes = is(1, command_line::kCompleteCommand);
  if (completes && argc > 3 && is(2, kCheckpoint)) {
    std::swap(argv[1], argv[2]);
    return cli::BecomeCheckpointTool(argv + 1);
  }
  lockstep::launch::BlockSignals();
  lockstep::RaiseOpenFileLimit();
  lockstep::http::InitializeHttpThreads(2);

  const auto line = SplitLine({argv, argv + argc});
  if (!line.ok()) {
    std::cerr << "lockstep run: " << line.error().message << "\nRun `lockstep run --help` for usage.\n";
    return command_line::kUsageError;
  }
  CLI::App app("Lockstep: elastic, fault-tolerant distributed training", "lockstep");
  app.set_version_flag("--version", std::string("lockstep ") + LOCKSTEP_VERSION);
  app.require_subcommand(1);
  app.footer("`lockstep COMMAND --help` has the arguments of a command and an example.");
  Arguments arguments;
  arguments.run.command = line->command;
  arguments.run.machines = line->machines;
  Commands commands{app};
  AddRun(commands, arguments.run);
  AddScaling(commands, arguments.scaling);
  AddMemory(commands, arguments.memory);
  AddManifestCommands(commands, arguments);
  AddResultCommands(commands, arguments);
  AddCompletion(commands, arguments);
  AddInternalCommands(commands, arguments, argc, line->command);
  if (completes) {
    std::cout << command_line::CompletionsFor(app, {argv + 2, argv + argc});
    return 0;
  }
  std::vector<const char*> parsed;
  for (const std::string& word : line->words) parsed.push_back(word.c_str());
  if (const auto code = command_line::ParseArguments(app, static_cast<int>(parsed.size()), parsed.data()))
    return *code;
  return commands.chosen();
}
