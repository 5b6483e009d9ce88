#pragma once
// Which state a rank holds a part of. Pure.

#include <compare>
#include <cstdint>

namespace lockstep::train {

// Identifies the state after `step` steps whose last step was made in `round`. A step that is repeated in a
// later round is a different version, because it may round differently.
struct Version {
  int64_t step = -1;
  int64_t round = -1;

  friend auto operator<=>(const Version&, const Version&) = default;
};

}  // namespace lockstep::train
