#include "runtime/launch/supervisor/termination_log.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/protocol/last_report.h"

namespace lockstep::launch {
namespace {

// In a pod the file is a separate mount: it can be written, but not replaced by a rename.
void Write(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) log::Warning("termination message not written", {{"file", path}});
}

}  // namespace

void WriteReasonOfEnd(const std::string& file, const std::string& reason, const std::string& last_lines) {
  // The kubelet keeps at most 4096 bytes of it.
  const std::string lines = last_lines.empty() ? "" : "\nlast lines of its stderr:\n" + last_lines;
  Write(file, Truncate(Truncate(reason, 1900) + lines, 4000));
}

void WriteLastReport(const std::string& file, const protocol::Heartbeat& heartbeat) {
  std::error_code none;
  const auto size = std::filesystem::file_size(file, none);
  if (!none && size > 0) return;
  Write(file, protocol::EncodeLastReport(heartbeat));
}

}  // namespace lockstep::launch
