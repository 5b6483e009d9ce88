// `lockstep-checkpoint`, which `lockstep checkpoint` becomes: the commands for what is stored. It links
// Arrow, which `lockstep` is to start without, and no LibTorch.

#include <CLI/CLI.hpp>
#include <functional>

#include "runtime/checkpoint_tool/commands.h"

namespace {

using lockstep::checkpoint_tool::Place;

int Run(const std::string& uri, const std::function<int(const Place&)>& command) {
  const auto store = lockstep::checkpoint::OpenForCommand(uri);
  if (!store.ok()) return lockstep::checkpoint_tool::Refuse(store.error());
  return command({**store, uri});
}

CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& what, std::string& uri) {
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("URI", uri, "spec.checkpoint.uri of the job: file:///folder or s3://bucket/prefix")
      ->required();
  return command;
}

std::string IsNotEmpty(const std::string& text) { return text.empty() ? "must not be empty" : ""; }

}  // namespace

int main(int argc, char** argv) {
  namespace tool = lockstep::checkpoint_tool;
  CLI::App app(
      "List, verify, export and remove checkpoints. For s3:// the environment has AWS_ACCESS_KEY_ID,\n"
      "AWS_SECRET_ACCESS_KEY and, where it is not AWS, AWS_ENDPOINT_URL.",
      "lockstep checkpoint");
  app.require_subcommand(1);
  std::string uri;
  std::optional<int64_t> step;
  int exit_code = 0;
  const auto runs = [&](CLI::App* command, const std::function<int(const Place&)>& body) {
    command->callback([&exit_code, &uri, body] { exit_code = Run(uri, body); });
  };
  const auto add_step = [&](CLI::App* command, const char* what) {
    return command->add_option("--step", step, what)->check(CLI::NonNegativeNumber);
  };

  CLI::App* list = AddCommand(app, "ls", "What is there, newest first", uri);
  bool as_json = false;
  list->add_flag("--json", as_json, "for programs");
  runs(list, [&](const Place& place) { return tool::List(place, as_json); });

  CLI::App* verify = AddCommand(app, "verify", "Read everything and say what is damaged", uri);
  add_step(verify, "this checkpoint only [all]");
  runs(verify, [&](const Place& place) { return tool::Verify(place, step); });

  CLI::App* exporting = AddCommand(app, "export", "Write a checkpoint as one safetensors file", uri);
  tool::ExportArguments export_arguments;
  exporting->add_option("FILE", export_arguments.file, "the file to write")->required();
  add_step(exporting, "[the newest]");
  exporting->add_flag("--weights-only", export_arguments.weights_only, "without what the optimizer keeps");
  runs(exporting, [&](const Place& place) {
    export_arguments.step = step;
    return tool::Export(place, export_arguments);
  });

  CLI::App* remove =
      AddCommand(app, "rm", "Remove a checkpoint, what is left of a save, or all that a job stored", uri);
  std::string job_uid;
  bool by_force = false;
  CLI::Option_group* what = remove->add_option_group("what");
  what->add_option("--step", step, "which")->check(CLI::NonNegativeNumber);
  what->add_option("--all-of-job", job_uid,
                   "all of the job of this uid (`ls --json`: jobUid), and nothing else")
      ->check(IsNotEmpty);
  what->require_option(1);
  remove->add_flag("--force", by_force,
                   "even the only sound one, a save that may be under way, or those of a job that runs");
  runs(remove, [&](const Place& place) {
    return step ? tool::Remove(place, {*step, by_force}) : tool::RemoveJob(place, {job_uid, by_force});
  });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? tool::kDone : tool::kBadArguments;
  }
  return exit_code;
}
