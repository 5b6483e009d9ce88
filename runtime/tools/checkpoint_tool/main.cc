// `lockstep-checkpoint`, which `lockstep checkpoint` becomes: the commands for what is stored. It links
// Arrow, which `lockstep` is to start without, and no LibTorch.

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "runtime/checkpoint/open_store.h"
#include "runtime/common/command_line/completion.h"
#include "runtime/common/command_line/usage.h"
#include "runtime/tools/checkpoint_tool/commands.h"

namespace {

namespace command_line = lockstep::command_line;
namespace tool = lockstep::checkpoint_tool;
using tool::Place;

int Run(const std::string& uri, const std::function<int(const Place&)>& command) {
  const auto store = lockstep::checkpoint::OpenForCommand(uri);
  if (!store.ok()) return tool::Refuse(store.error());
  return command({**store, uri});
}

constexpr const char* kUri =
    "spec.checkpoint.uri of the job: s3://bucket/prefix, gs://bucket/prefix,\n"
    "abfs://container@account.dfs.core.windows.net/prefix or file:///folder";

// What the flags write to, for as long as the commands may run.
struct Arguments {
  std::string uri;
  std::optional<int64_t> step;
  bool as_json = false;
  tool::ExportArguments exporting;
  tool::RemoveJobArguments job;
};

// The commands; `chosen` is the one that was typed, to be run after all flags are read.
struct Commands {
  CLI::App& app;
  Arguments& arguments;
  std::function<int(const Place&)> chosen{};

  CLI::App* Add(const char* name, const char* what, std::function<int(const Place&)> body) {
    CLI::App* command = app.add_subcommand(name, what);
    command->add_option("URI", arguments.uri, kUri)->type_name("")->required();
    command->callback([this, body = std::move(body)] { chosen = body; });
    return command;
  }
  void AddStep(CLI::App* command, const char* what) const {
    command->add_option("--step", arguments.step, what)
        ->type_name("N")
        ->check(command_line::MustNotBeNegative);
  }
};

std::string IsNotEmpty(const std::string& text) { return text.empty() ? "must not be empty" : ""; }

void AddReadingCommands(Commands& commands, Arguments& arguments) {
  CLI::App* list = commands.Add("ls", "List the checkpoints below a URI, newest first",
                                [&](const Place& place) { return tool::List(place, arguments.as_json); });
  list->add_flag("--json", arguments.as_json, "for programs");
  list->footer("Example:\n  lockstep checkpoint ls s3://bucket/fashion-mnist");

  CLI::App* verify = commands.Add("verify", "Read everything that is stored and say what is damaged",
                                  [&](const Place& place) { return tool::Verify(place, arguments.step); });
  commands.AddStep(verify, "this checkpoint only [all]");
  verify->footer("Example:\n  lockstep checkpoint verify gs://bucket/fashion-mnist --step 400");

  CLI::App* exporting =
      commands.Add("export", "Write a checkpoint as one safetensors file", [&](const Place& place) {
        arguments.exporting.step = arguments.step;
        return tool::Export(place, arguments.exporting);
      });
  exporting->add_option("FILE", arguments.exporting.file, "the file to write")->type_name("")->required();
  commands.AddStep(exporting, "which [the newest]");
  exporting->add_flag("--weights-only", arguments.exporting.weights_only,
                      "exclude the state of the optimizer");
  exporting->add_flag("--average", arguments.exporting.average,
                      "as --weights-only, but each weight is its moving average\n"
                      "(spec.training.optimizer.weightAverage)");
  exporting->footer(
      "Example:\n  lockstep checkpoint export file:///data/fashion-mnist model.safetensors --weights-only");
}

void AddRemove(Commands& commands, Arguments& arguments) {
  CLI::App* remove = commands.Add(
      "rm", "Remove a checkpoint, what is left of a save, or all that a job stored", [&](const Place& place) {
        return arguments.step ? tool::Remove(place, {*arguments.step, arguments.job.force})
                              : tool::RemoveJob(place, arguments.job);
      });
  CLI::Option_group* what = remove->add_option_group("what");
  commands.AddStep(what, "which");
  what->add_option("--all-of-job", arguments.job.uid,
                   "all of the job of this uid (`ls --json`: jobUid), and nothing else")
      ->type_name("UID")
      ->check(IsNotEmpty);
  what->require_option(1);
  remove->add_flag("--force", arguments.job.force,
                   "even the only sound one, a save that may be under way, or those of a job that runs");
  remove->footer("Example:\n  lockstep checkpoint rm s3://bucket/fashion-mnist --step 400");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("List, verify, export and remove checkpoints in S3, Google Cloud Storage, Azure or a folder.",
               "lockstep checkpoint");
  app.footer(
      "Credentials come from the environment: for s3:// from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, "
      "for\n"
      "a server that is not Amazon's, AWS_ENDPOINT_URL; for gs:// from GOOGLE_CREDENTIALS; for abfs:// from\n"
      "AZURE_STORAGE_KEY.\n"
      "`lockstep checkpoint COMMAND --help` has the arguments of a command and an example.");
  app.require_subcommand(1);
  Arguments arguments;
  Commands commands{app, arguments};
  AddReadingCommands(commands, arguments);
  AddRemove(commands, arguments);
  if (argc > 1 && argv[1] == command_line::kCompleteCommand) {
    std::cout << command_line::CompletionsFor(app, {argv + 2, argv + argc});
    return tool::kDone;
  }
  if (const auto code = command_line::ParseArguments(app, argc, argv)) return *code;
  return Run(arguments.uri, commands.chosen);
}
