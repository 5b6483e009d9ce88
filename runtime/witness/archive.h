#pragma once
// The Python files of the witness as an archive in memory that Python imports from: a ZIP file without compression, in
// an anonymous file that `lockstep program` owns. PYTHONPATH names it by its path under /proc, so nothing is
// installed in the user's image. ZIP: APPNOTE.TXT of PKWARE, 4.3.7, 4.3.12 and 4.3.16.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/file.h"
#include "runtime/common/base/result.h"

namespace lockstep::witness {

struct PythonFile {
  std::string_view name;
  std::string_view text;
};

// Those of the folder python.
[[nodiscard]] const std::vector<PythonFile>& PythonFiles();

[[nodiscard]] std::string ZipOf(const std::vector<PythonFile>& files);

// Any thread; the path of the archive is PathOf(file) (page.h).
[[nodiscard]] Result<Fd> MakeArchive();

}  // namespace lockstep::witness
