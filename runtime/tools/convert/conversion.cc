#include "runtime/tools/convert/conversion.h"

#include <algorithm>
#include <cctype>

namespace lockstep::convert {

void Conversion::Comment(const std::string& path, const std::string& text) {
  std::string& comment = comments[path];
  comment += (comment.empty() ? "" : "\n") + text;
}

std::string Conversion::Flag(const std::string& name) const {
  const auto found = pods.launch.flags.find(name);
  return found == pods.launch.flags.end() ? "" : found->second;
}

std::string Conversion::FlagPath(const std::string& name) const {
  return template_path + "." + pods.trainer + ".command " + name;
}

std::optional<int64_t> IntegerFrom(const std::string& text) {
  const bool is_number =
      !text.empty() && text.size() < 10 &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
  return is_number ? std::optional<int64_t>(std::stoll(text)) : std::nullopt;
}

bool IsVariable(const std::string& value) { return value.find('$') != std::string::npos; }

}  // namespace lockstep::convert
