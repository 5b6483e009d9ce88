#include "runtime/common/base/resident_memory.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace lockstep {

std::optional<double> ResidentBytes(pid_t process) {
  std::ifstream statm("/proc/" + std::to_string(process) + "/statm");
  double total_pages = 0;
  double resident_pages = 0;
  if (!(statm >> total_pages >> resident_pages)) return std::nullopt;
  return resident_pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

}  // namespace lockstep
