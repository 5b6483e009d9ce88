#pragma once
// ObjectStore in a folder of this machine. See object_store.h.

#include "runtime/checkpoint/object_store.h"

namespace lockstep::checkpoint {

[[nodiscard]] Result<std::unique_ptr<ObjectStore>> OpenFileStore(const std::string& folder,
                                                                 StoreUser user = StoreUser::kJob);

}  // namespace lockstep::checkpoint
