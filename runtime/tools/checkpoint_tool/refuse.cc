#include <iostream>

#include "runtime/tools/checkpoint_tool/commands.h"
#include "runtime/tools/checkpoint_tool/text.h"

namespace lockstep::checkpoint_tool {

int Refuse(const Error& error) {
  std::cerr << "lockstep checkpoint: " << Printable(error.message) << "\n";
  if (checkpoint::IsDamage(error) || error.code == ErrorCode::kConflict) return kNotSound;
  return error.code == ErrorCode::kInvalidArgument ? kBadArguments : kStoreFailed;
}

}  // namespace lockstep::checkpoint_tool
