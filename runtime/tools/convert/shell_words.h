#pragma once
// Finds the simple commands in a POSIX shell script, enough to find a launcher among them: quotes, comments
// and continued lines, but no here-documents. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::convert {

struct ShellWord {
  std::string raw;    // as written
  std::string value;  // without quotes; variables are not expanded
};

struct ShellCommand {
  std::vector<ShellWord> words;
  std::size_t begin = 0;  // offset in the script
  std::size_t end = 0;
};

[[nodiscard]] std::vector<ShellCommand> ShellCommands(std::string_view script);

}  // namespace lockstep::convert
