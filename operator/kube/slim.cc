#include "operator/kube/slim.h"

#include <utility>

namespace lockstep::kube {

FieldMask::FieldMask(std::initializer_list<std::vector<std::string>> paths) {
  for (const std::vector<std::string>& path : paths) {
    Node* node = &root_;
    for (const std::string& key : path) node = &node->children[key];
  }
}

Json FieldMask::Apply(Json object) const { return Keep(object, root_); }

Json FieldMask::Keep(Json& value, const Node& node) {
  if (node.children.empty()) return std::move(value);
  if (value.is_array()) {
    Json list = Json::array();
    const auto each = node.children.find("*");
    if (each == node.children.end()) return list;
    for (Json& entry : value) list.push_back(Keep(entry, each->second));
    return list;
  }
  Json kept = Json::object();
  if (!value.is_object()) return kept;
  for (const auto& [key, child] : node.children) {
    const auto found = value.find(key);
    if (found != value.end()) kept[key] = Keep(*found, child);
  }
  return kept;
}

}  // namespace lockstep::kube
