#pragma once
// Lists the objects of a remote store that a data format needs, in their current version. Any thread; errors
// name the field.

#include <string_view>
#include <vector>

#include "runtime/data/fetch.h"
#include "runtime/data/remote_objects.h"

namespace lockstep::data {

// Whether an object name is a relative path that stays inside its folder. Pure.
[[nodiscard]] bool IsPlainName(std::string_view name);
// A hash that is equal only for the same objects. Pure.
[[nodiscard]] std::string VersionOf(const std::vector<RemoteObject>& objects);

// Ordered by name for formats that are read ahead. kInvalidArgument: an object is missing.
[[nodiscard]] Result<std::vector<RemoteObject>> TakeInventory(const api::DataSpec& spec,
                                                              RemoteObjects& source,
                                                              const FetchOptions& options);

}  // namespace lockstep::data
