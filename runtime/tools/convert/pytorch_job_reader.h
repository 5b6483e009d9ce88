#pragma once
// Reads a PyTorchJob by the field names of the table, and keeps track of fields that were not read. This is
// no FieldReader (common/base/fields.h), which fills in structs of ours by a list of all their fields: here
// the document is Kubeflow's, only some of its fields have a counterpart, and each of the others needs its own
// remark for the user. Not thread-safe.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/tools/convert/notice.h"

namespace lockstep::convert {

class PyTorchJobReader {
 public:
  // Both must outlive it.
  PyTorchJobReader(const Json& object, Notices& notices) : object_(object), notices_(notices) {}

  // nullptr if it is absent. The field must be one of JobFields().
  const Json* Take(std::string_view field);
  // Like Take; a value of another type is reported as an error and treated as absent.
  std::optional<int64_t> TakeInteger(std::string_view field);
  std::string TakeText(std::string_view field);

  // Adds notices for fields that were not read: the remark of the table, or that the field is unknown.
  void Finish();

 private:
  void Walk(const Json& object, const std::string& path);

  const Json& object_;
  Notices& notices_;
  std::set<std::string, std::less<>> taken_;
};

}  // namespace lockstep::convert
