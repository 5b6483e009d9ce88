#include <cstdio>
#include <cstdlib>

#include "runtime/common/base/file.h"
#include "runtime/common/protocol/environment.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/launch/process/self_copy.h"
#include "runtime/launch/program/program_rank.h"
#include "runtime/tools/cli/commands.h"

namespace lockstep::cli {

namespace env = protocol::env;

int Program(const std::vector<std::string>& command) {
  const std::string control = EnvOr(env::kControlFd, "");
  auto config = protocol::ReadWorkerConfig(EnvOr(env::kConfig, "/etc/lockstep/config.json"));
  if (control.empty() || command.empty() || !config.ok()) {
    std::fprintf(
        stderr,
        "lockstep program: needs a command, %s and a config document; `lockstep worker` starts it%s\n",
        env::kControlFd, config.ok() ? "" : (": " + config.error().message).c_str());
    return static_cast<int>(protocol::ExitCode::kBadConfiguration);
  }
  return launch::RunProgramRank({*std::move(config), command, Fd(std::atoi(control.c_str()))});
}

int CopyTo(const std::string& folder) {
  const Result<void> copied = launch::CopyRunningProgram(folder);
  if (copied.ok()) return 0;
  std::fprintf(stderr, "lockstep copy-to: %s\n", copied.error().message.c_str());
  return static_cast<int>(protocol::ExitCode::kInfrastructure);
}

}  // namespace lockstep::cli
