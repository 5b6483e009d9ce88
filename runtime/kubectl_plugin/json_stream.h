#pragma once
// The objects of a stream of JSON texts, as `kubectl get --watch --output=json` writes them: one after the
// other, over many lines. Pure; one thread.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::kubectl_plugin {

class JsonStream {
 public:
  // The texts of the objects that these bytes complete, oldest first.
  [[nodiscard]] std::vector<std::string> Add(std::string_view bytes);

 private:
  std::string object_;  // begun, not yet complete
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace lockstep::kubectl_plugin
