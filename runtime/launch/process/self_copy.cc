#include "runtime/launch/process/self_copy.h"

#include <link.h>

#include <filesystem>
#include <vector>

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

struct Loaded {
  std::string loader;
  std::vector<std::string> libraries;  // may include the loader
};

int Collect(dl_phdr_info* info, std::size_t, void* into) {
  Loaded& loaded = *static_cast<Loaded*>(into);
  const std::string name = info->dlpi_name;
  if (name.starts_with('/'))
    loaded.libraries.push_back(name);  // otherwise it is the program itself, or the vDSO
  for (int i = 0; i < info->dlpi_phnum && loaded.loader.empty(); ++i) {
    if (info->dlpi_phdr[i].p_type == PT_INTERP)
      // NOLINTNEXTLINE(performance-no-int-to-ptr): dl_iterate_phdr(3) gives addresses as integers
      loaded.loader = reinterpret_cast<const char*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  }
  return 0;
}

Result<void> Copy(const fs::path& from, const fs::path& to, fs::perms permissions) {
  std::error_code error;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (!error) fs::permissions(to, permissions, error);
  if (error)
    return Error{ErrorCode::kInternal, from.string() + " to " + to.string() + ": " + error.message()};
  return {};
}

}  // namespace

Result<void> CopyRunningProgram(const std::string& folder) {
  Loaded loaded;
  ::dl_iterate_phdr(Collect, &loaded);
  if (loaded.loader.empty())
    return Error{ErrorCode::kUnsupported, "this program names no dynamic loader: it cannot be copied"};
  const fs::path target(folder);
  const fs::perms readable =
      fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read | fs::perms::others_read;
  const fs::perms executable =
      readable | fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;
  for (const std::string& library : loaded.libraries) {
    LOCKSTEP_TRY(Copy(library, target / fs::path(library).filename(), readable));
  }
  LOCKSTEP_TRY(Copy(loaded.loader, target / kCopiedLoader, executable));
  return Copy("/proc/self/exe", target / kCopiedProgram, executable);
}

}  // namespace lockstep::launch
