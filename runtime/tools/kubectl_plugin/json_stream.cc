#include "runtime/tools/kubectl_plugin/json_stream.h"

#include <utility>

namespace lockstep::kubectl_plugin {

std::vector<std::string> JsonStream::Add(std::string_view bytes) {
  std::vector<std::string> objects;
  for (const char c : bytes) {
    if (depth_ == 0 && c != '{') continue;
    object_.push_back(c);
    if (escaped_) {
      escaped_ = false;
    } else if (in_string_) {
      escaped_ = c == '\\';
      in_string_ = c != '"';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{') {
      ++depth_;
    } else if (c == '}' && --depth_ == 0) {
      objects.push_back(std::exchange(object_, {}));
    }
  }
  return objects;
}

}  // namespace lockstep::kubectl_plugin
