#pragma once
// Splits a stream of JSON texts into objects, as written by `kubectl get --watch --output=json`: consecutive
// objects on many lines. Pure; one thread.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::kubectl_plugin {

class JsonStream {
 public:
  // The texts of the objects that these bytes complete, oldest first.
  [[nodiscard]] std::vector<std::string> Add(std::string_view bytes);

 private:
  std::string object_;  // incomplete
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace lockstep::kubectl_plugin
