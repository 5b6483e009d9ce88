#pragma once
// A PyTorchJob, field by field, by the names in the table; knows which fields nobody asked for. Not
// thread-safe.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/convert/notice.h"

namespace lockstep::convert {

class FieldReader {
 public:
  // Both must outlive it.
  FieldReader(const Json& object, Notices& notices) : object_(object), notices_(notices) {}

  // nullptr where it is absent. The field must be one of JobFields().
  const Json* Take(std::string_view field);
  // The same; a value of another type is an error of the manifest, and as good as none.
  std::optional<int64_t> TakeInteger(std::string_view field);
  std::string TakeText(std::string_view field);

  // Notices of the fields that were not taken: what the table says of them, or that it does not know them.
  void Finish();

 private:
  void Walk(const Json& object, const std::string& path);

  const Json& object_;
  Notices& notices_;
  std::set<std::string, std::less<>> taken_;
};

}  // namespace lockstep::convert
