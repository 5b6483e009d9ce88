// `lockstep`: the command line and the worker pod's PID 1. Links no LibTorch, so it starts in milliseconds.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string_view>

#include "runtime/cli/commands.h"
#include "runtime/common/base/open_files.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/launch/process.h"
#include "runtime/launch/signals.h"

int main(int argc, char** argv) {
  constexpr const char* kCheckpoint = "checkpoint";
  // First: what is changed here for signals would last.
  if (argc > 1 && std::string_view(argv[1]) == kCheckpoint)
    return lockstep::cli::BecomeCheckpointTool(argv + 1);
  lockstep::launch::BlockSignals();
  lockstep::RaiseOpenFileLimit();
  lockstep::http::InitializeHttpThreads(2);
  CLI::App app("Lockstep: elastic, fault-tolerant distributed training");
  app.set_version_flag("--version", std::string("lockstep ") + LOCKSTEP_VERSION);
  app.require_subcommand(1);

  // What follows "--" is a command of the user's, whatever it looks like.
  constexpr std::string_view kWorker = "worker";
  constexpr std::string_view kProgram = "program";
  const bool takes_command = argc > 1 && (argv[1] == kWorker || argv[1] == kProgram);
  char** const end = argv + argc;
  char** const separator = takes_command ? std::find(argv, end, std::string_view("--")) : end;
  const std::vector<std::string> command(separator == end ? end : separator + 1, end);

  int exit_code = 0;
  app.add_subcommand(std::string(kWorker),
                     "Supervise the rank processes of a worker pod (started by the operator)")
      ->callback([&] {
        exit_code = lockstep::cli::Worker({lockstep::launch::OwnCommand(argc - 1), command});
      });
  constexpr const char* kHidden = "";
  app.add_subcommand(std::string(kProgram), "Run a command as a rank (started by lockstep worker)")
      ->group(kHidden)
      ->callback([&] { exit_code = lockstep::cli::Program(command); });
  std::string folder;
  CLI::App* copy =
      app.add_subcommand("copy-to", "Copy this program with its libraries (run in a pod's init container)");
  copy->group(kHidden);
  copy->add_option("folder", folder)->required();
  copy->callback([&] { exit_code = lockstep::cli::CopyTo(folder); });

  lockstep::cli::RunArguments run_arguments;
  CLI::App* run = app.add_subcommand(
      "run", "Train a manifest without Kubernetes: on this machine, or on each node of a Slurm job");
  run->add_option("manifest", run_arguments.manifest, "DistributedTrainingJob manifest (YAML or JSON)")
      ->required();
  run->add_option("--replicas", run_arguments.replicas, "worker processes, instead of spec.worker.replicas");
  run->add_option("--folder", run_arguments.folder, "logs and checkpoints [run/<job name>]");
  run->add_option("--checkpoint-uri", run_arguments.checkpoint_uri, "where checkpoints go [the folder]");
  run->callback([&] { exit_code = lockstep::cli::Run(run_arguments); });

  std::string manifest;
  CLI::App* validate =
      app.add_subcommand("validate", "Say what is wrong with a manifest, or that it is valid");
  validate->add_option("manifest", manifest, "DistributedTrainingJob manifest (YAML or JSON)")->required();
  validate->callback([&] { exit_code = lockstep::cli::Validate(manifest); });

  lockstep::cli::ConvertArguments convert_arguments;
  CLI::App* convert = app.add_subcommand(
      "convert", "Turn a PyTorchJob of Kubeflow into a DistributedTrainingJob, on standard output");
  convert
      ->add_option("manifest", convert_arguments.manifest,
                   "PyTorchJob manifest (YAML or JSON); - for standard input")
      ->required();
  convert->add_flag("--force", convert_arguments.force,
                    "write it also where the job would do something else");
  convert->callback([&] { exit_code = lockstep::cli::Convert(convert_arguments); });

  app.add_subcommand("models", "List the models that a manifest can name, with their fields")->callback([&] {
    exit_code = lockstep::cli::Models();
  });

  lockstep::cli::PlotArguments plot_arguments;
  CLI::App* plot = app.add_subcommand(
      "plot", "Draw loss, accuracy and speed of a training, with its rounds, as SVG or PNG");
  plot->add_option("history", plot_arguments.history,
                   "history.jsonl, or the folder of checkpoints that it lies in")
      ->required();
  plot->add_option("-o,--output", plot_arguments.output, "the picture, *.svg or *.png [history.svg]");
  plot->callback([&] { exit_code = lockstep::cli::Plot(plot_arguments); });

  app.add_subcommand(kCheckpoint, "List, verify, export and remove stored checkpoints");

  CLI11_PARSE(app, static_cast<int>(separator - argv), argv);
  return exit_code;
}
