#pragma once
// Reading one large object: in pieces, several at a time, for a store gives one connection a fraction of what
// it has, and who waits for the next piece looks at the one before.

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/checkpoint/object_store.h"

namespace lockstep::checkpoint {

// Fills `target` with an object of that size. `look` is given its pieces in order, on the caller's thread,
// while later ones arrive. The first error ends it, after the requests that are under way.
[[nodiscard]] Result<void> ReadInPieces(ObjectStore& store, const std::string& name, std::span<char> target,
                                        const std::function<void(std::string_view piece)>& look);

}  // namespace lockstep::checkpoint
