#include <fcntl.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/protocol/environment.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/common/rendezvous/following_transport.h"
#include "runtime/launch/process/process.h"
#include "runtime/launch/supervisor/supervisor.h"
#include "runtime/tools/cli/commands.h"

namespace lockstep::cli {
namespace {

namespace env = protocol::env;

// Null in pods, and for ranks of lockstep-rank.
std::unique_ptr<launch::ProgramOutputSender> OutputFromEnvironment() {
  const std::string number = EnvOr(env::kOutputFd, "");
  if (number.empty()) return nullptr;
  Fd pipe(std::atoi(number.c_str()));
  ::fcntl(pipe.get(), F_SETFD, FD_CLOEXEC);  // its end signals the end of this process, not of its ranks
  return std::make_unique<launch::ProgramOutputSender>(std::move(pipe));
}

Result<launch::SupervisorOptions> OptionsFrom(const WorkerArguments& arguments,
                                              launch::ProgramOutputSender* output) {
  launch::SupervisorOptions options;
  LOCKSTEP_TRY(options.config, protocol::ReadWorkerConfig(EnvOr(env::kConfig, "/etc/lockstep/config.json")));
  options.member = {.pod = EnvOr(env::kPodName, ""),
                    .pod_uid = EnvOr(env::kPodUid, ""),
                    .slot = std::atoi(EnvOr(env::kSlot, "0").c_str()),
                    .incarnation = RandomHex(8)};
  options.address = EnvOr(env::kPodIp, "");
  for (const auto& [name, value] :
       {std::pair(env::kPodName, options.member.pod), std::pair(env::kPodUid, options.member.pod_uid),
        std::pair(env::kPodIp, options.address)}) {
    if (value.empty())
      return Error{ErrorCode::kInvalidArgument, std::string(name) + " is not set: the operator sets it"};
  }
  options.is_program = !arguments.program.empty();
  if (options.is_program) {
    options.rank_command = arguments.own_command;
    options.rank_command.insert(options.rank_command.end(), {"program", "--"});
    options.rank_command.insert(options.rank_command.end(), arguments.program.begin(),
                                arguments.program.end());
  } else {
    options.rank_command = {EnvOr(env::kRankProgram, launch::ProgramFolder() + "/lockstep-rank")};
  }
  options.output = output;
  options.termination_log = EnvOr(env::kTerminationLog, "/dev/termination-log");
  return options;
}

}  // namespace

int Worker(const WorkerArguments& arguments) {
  log::SetLevel(EnvOr(env::kLogLevel, "info"));
  const auto output = OutputFromEnvironment();
  const auto options = OptionsFrom(arguments, output.get());
  if (!options.ok()) {
    log::Error("the worker cannot start", {{"error", options.error().message}});
    return static_cast<int>(protocol::ExitCode::kBadConfiguration);
  }
  log::Bind({{"job", options->config.job.name}, {"pod", options->member.pod}});
  const auto transport = rendezvous::FollowingTransport::Make({.url = options->config.rendezvous.url,
                                                               .ca_file = options->config.rendezvous.ca_file,
                                                               .token_file = EnvOr(env::kTokenFile, ""),
                                                               .use_proxy_environment = false});
  if (!transport.ok()) {
    log::Error("the rendezvous cannot be reached", {{"error", transport.error().message}});
    return static_cast<int>(protocol::ExitCode::kBadConfiguration);
  }
  return launch::RunSupervisor(*options, **transport);
}

}  // namespace lockstep::cli
