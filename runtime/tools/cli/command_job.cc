#include "runtime/tools/cli/command_job.h"

#include <algorithm>
#include <filesystem>

#include "runtime/common/api/names.h"
#include "runtime/common/api/training_job.h"

namespace lockstep::cli {
namespace {

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// A DNS label: lower case, letters and digits, "-" between them; it begins with a letter.
std::string LabelOf(const std::string& text) {
  std::string label;
  for (const char letter : text) {
    const char c = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    if (IsLetterOrDigit(c)) {
      label += c;
    } else if (!label.empty() && label.back() != '-') {
      label += '-';
    }
  }
  label.resize(std::min(label.size(), api::kMaxJobNameLength - 4));
  while (!label.empty() && label.back() == '-') label.pop_back();
  const bool begins_with_letter = !label.empty() && label.front() >= 'a';
  return begins_with_letter ? label : "run" + (label.empty() ? "" : "-" + label);
}

std::string NameOf(const std::vector<std::string>& command) {
  const auto script = std::find_if(command.begin(), command.end(),
                                   [](const std::string& word) { return word.ends_with(".py"); });
  return LabelOf(std::filesystem::path(script == command.end() ? command.front() : *script).stem().string());
}

// In a manifest "$(NAME)" stands for a variable and "$$" for "$".
std::string Quoted(const std::string& word) {
  std::string quoted;
  for (const char c : word) quoted += c == '$' ? "$$" : std::string(1, c);
  return quoted;
}

}  // namespace

Json JobOfCommand(const std::vector<std::string>& command, int nproc) {
  Json words = Json::array();
  for (const std::string& word : command) words.push_back(Quoted(word));
  const Json trainer = {{"name", "trainer"}, {"image", "none"}, {"command", std::move(words)}};
  const Json pod = {{"spec", {{"containers", Json::array({trainer})}}}};
  return {{"apiVersion", api::kApiVersion},
          {"kind", api::kKind},
          {"metadata", {{"name", NameOf(command)}}},
          {"spec", {{"nprocPerNode", nproc}, {"worker", {{"replicas", 1}, {"template", pod}}}}}};
}

}  // namespace lockstep::cli
