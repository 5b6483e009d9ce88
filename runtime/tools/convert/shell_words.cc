#include "runtime/tools/convert/shell_words.h"

#include <algorithm>
#include <utility>

namespace lockstep::convert {
namespace {

constexpr std::string_view kEndsCommand = "\n;&|()";
constexpr std::string_view kBlank = " \t\r";

class Splitter {
 public:
  explicit Splitter(std::string_view script) : script_(script) {}

  std::vector<ShellCommand> Split() && {
    while (at_ < script_.size()) Step();
    EndCommand();
    return std::move(commands_);
  }

 private:
  void Step() {
    const char c = script_[at_];
    if (script_.substr(at_).starts_with("\\\n")) {
      EndWord();
      at_ += 2;
    } else if (kBlank.find(c) != std::string_view::npos) {
      EndWord();
      ++at_;
    } else if (kEndsCommand.find(c) != std::string_view::npos) {
      EndCommand();
      ++at_;
    } else if (c == '#' && !in_word_) {
      at_ = std::min(script_.find('\n', at_), script_.size());
    } else {
      Begin();
      Character();
    }
  }

  void Begin() {
    if (in_word_) return;
    in_word_ = true;
    if (command_.words.empty()) command_.begin = at_;
    word_begin_ = at_;
  }

  void Character() {
    const char c = script_[at_];
    if (c == '\'' || c == '"') return Quoted(c);
    if (script_.substr(at_).starts_with("$(")) return Substitution();
    if (c == '\\' && at_ + 1 < script_.size()) ++at_;
    value_ += script_[at_++];
  }

  void Quoted(char quote) {
    for (++at_; at_ < script_.size() && script_[at_] != quote; ++at_) {
      const bool escapes = quote == '"' && script_[at_] == '\\' && at_ + 1 < script_.size() &&
                           std::string_view("\"\\$`").find(script_[at_ + 1]) != std::string_view::npos;
      if (escapes) ++at_;
      value_ += script_[at_];
    }
    if (at_ < script_.size()) ++at_;
  }

  // $(…) belongs to its word, including blanks.
  void Substitution() {
    int depth = 0;
    do {
      depth += script_[at_] == '(' ? 1 : script_[at_] == ')' ? -1 : 0;
      value_ += script_[at_++];
    } while (at_ < script_.size() && (depth > 0 || value_.ends_with('$')));
  }

  void EndWord() {
    if (!std::exchange(in_word_, false)) return;
    command_.words.push_back(
        {std::string(script_.substr(word_begin_, at_ - word_begin_)), std::exchange(value_, "")});
    command_.end = at_;
  }

  void EndCommand() {
    EndWord();
    if (!command_.words.empty()) commands_.push_back(std::exchange(command_, {}));
  }

  std::string_view script_;
  std::size_t at_ = 0;
  bool in_word_ = false;
  std::size_t word_begin_ = 0;
  std::string value_;
  ShellCommand command_;
  std::vector<ShellCommand> commands_;
};

}  // namespace

std::vector<ShellCommand> ShellCommands(std::string_view script) { return Splitter(script).Split(); }

}  // namespace lockstep::convert
