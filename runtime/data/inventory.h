#pragma once
// Which objects of a remote store a format needs, as they are now. Any thread; errors name the field.

#include <string_view>
#include <vector>

#include "runtime/data/fetch.h"
#include "runtime/data/remote_objects.h"

namespace lockstep::data {

// Objects as they are called below a folder with this version, and nothing that leads out of it. Pure.
[[nodiscard]] bool IsPlainName(std::string_view name);
// The same for the same objects only. Pure.
[[nodiscard]] std::string VersionOf(const std::vector<RemoteObject>& objects);

// In order of their names where the format is one that is read ahead. kInvalidArgument where one is
// missing.
[[nodiscard]] Result<std::vector<RemoteObject>> TakeInventory(const api::DataSpec& spec,
                                                              RemoteObjects& source,
                                                              const FetchOptions& options);

}  // namespace lockstep::data
