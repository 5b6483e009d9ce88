#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "runtime/launch/process/process.h"
#include "runtime/tools/cli/commands.h"

namespace lockstep::cli {

int BecomeCheckpointTool(char** arguments) {
  const std::string program = launch::ProgramFolder() + "/lockstep-checkpoint";
  ::execv(program.c_str(), arguments);
  std::fprintf(stderr,
               "lockstep checkpoint: %s: %s; it is in the folder of `lockstep` in the worker's image and in "
               "a full build\n",
               program.c_str(), std::strerror(errno));
  return 2;
}

}  // namespace lockstep::cli
