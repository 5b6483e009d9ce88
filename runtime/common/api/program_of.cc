#include "runtime/common/api/program_of.h"

#include <algorithm>

namespace lockstep::api {
namespace {

const Json& ListAt(const Json& object, std::string_view key) {
  static const Json none = Json::array();
  const Json* found = FindJson(object, {key});
  return found != nullptr && found->is_array() ? *found : none;
}

}  // namespace

const Json* FindTrainer(const WorkerSpec& worker) {
  const Json* containers = FindJson(worker.pod_template, {"spec", "containers"});
  if (containers == nullptr || !containers->is_array()) return nullptr;
  const auto found = std::find_if(containers->begin(), containers->end(), [&](const Json& container) {
    return StringAt(container, {"name"}) == worker.container_name;
  });
  return found == containers->end() ? nullptr : &*found;
}

std::string ExpandReferences(std::string_view text, const Variables& variables) {
  std::string expanded;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const std::size_t close = rest.starts_with("$(") ? rest.find(')') : std::string_view::npos;
    if (rest.starts_with("$$")) {
      expanded += '$';
      at += 2;
    } else if (close != std::string_view::npos) {
      const auto found = variables.find(std::string(rest.substr(2, close - 2)));
      expanded += found != variables.end() ? std::string_view(found->second) : rest.substr(0, close + 1);
      at += close + 1;
    } else {
      expanded += rest.front();
      ++at;
    }
  }
  return expanded;
}

ProgramStart ProgramStartOf(const WorkerSpec& worker, Variables given) {
  ProgramStart start;
  const Json* trainer = FindTrainer(worker);
  if (trainer == nullptr) return start;
  for (const Json& variable : ListAt(*trainer, "env")) {
    const std::string name = StringAt(variable, {"name"});
    if (FindJson(variable, {"valueFrom"}) != nullptr) {
      start.left_out.push_back(name);
      continue;
    }
    const std::string value = ExpandReferences(StringAt(variable, {"value"}), given);
    given[name] = value;
    start.environment.emplace_back(name, value);
  }
  for (const char* part : {"command", "args"}) {
    for (const Json& word : ListAt(*trainer, part)) {
      if (word.is_string()) start.words.push_back(ExpandReferences(word.get<std::string>(), given));
    }
  }
  return start;
}

}  // namespace lockstep::api
