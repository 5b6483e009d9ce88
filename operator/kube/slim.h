#pragma once
// Removes from an object the fields that the operator does not read, which keeps the caches small. Pure.

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/json.h"

namespace lockstep::kube {

// A set of paths. "*" matches every entry of a list; a path keeps everything below it.
class FieldMask {
 public:
  FieldMask(std::initializer_list<std::vector<std::string>> paths);
  [[nodiscard]] Json Apply(Json object) const;

 private:
  struct Node {
    std::map<std::string, Node> children;  // empty: keep everything
  };
  static Json Keep(Json& value, const Node& node);

  Node root_;
};

}  // namespace lockstep::kube
