#pragma once
// Who holds which part of the optimizer's state, as numbers: what sharded_optimizer decides with. Elements
// are those of all trained parameters, one parameter after another. Pure.

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::train {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  [[nodiscard]] int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

[[nodiscard]] int64_t SizeOf(const std::vector<Range>& ranges);
// What lies in both, in the order of `a`; a piece lies in one range of each.
[[nodiscard]] std::vector<Range> Common(const std::vector<Range>& a, const std::vector<Range>& b);
// Of their elements, in their order, `size` from the `begin`th on; fewer at the end.
[[nodiscard]] std::vector<Range> Section(const std::vector<Range>& ranges, int64_t begin, int64_t size);
[[nodiscard]] std::vector<Range> Without(const std::vector<Range>& ranges, const Range& taken);

// Near-equal parts. A cut within a tensor is at a multiple of 16 elements of it: kernels compute the rest of
// a tensor that fills no vector apart, and so round each element as they do with the whole tensor.
[[nodiscard]] std::vector<Range> CutEvenly(std::span<const int64_t> sizes, int parts);

// Which of the parts, one for each of `holders`, the rank in a position holds: its own first, then copies of the parts of
// ranks in the pods after its own, so that copies outlive a pod where there are enough pods. Each part is held `copies`
// times, or by all holders if they are fewer. Positions are by pod, `ranks_in_pod` in each.
[[nodiscard]] std::vector<int> PartsHeldBy(int position, int holders, int copies, int ranks_in_pod);

// The state after `step` steps, the last of which was made in `round`: a step that is made again in a later
// round is another, as it may round differently.
struct Version {
  int64_t step = -1;
  int64_t round = -1;

  friend auto operator<=>(const Version&, const Version&) = default;
};

struct Holding {
  Version version;
  Range range;
};

// A rank, as the others know it.
struct Holder {
  Version version;  // of its parameters
  std::vector<Holding> held;
};

// Of a version: which elements each rank gives, so that each element is given once. Less than [0, total)
// where not all is held.
[[nodiscard]] std::vector<std::vector<Range>> GivenBy(const std::vector<Holder>& holders,
                                                      const Version& version, int64_t total);
// What nobody holds of a version.
[[nodiscard]] std::vector<Range> MissingOf(const std::vector<Holder>& holders, const Version& version,
                                           int64_t total);
// The newest version that can be gone on from: someone has its parameters, and all of [0, total) is held.
// Before the first step nothing needs to be held, as all of it is zero.
[[nodiscard]] std::optional<Version> NewestWhole(const std::vector<Holder>& holders, int64_t total);

}  // namespace lockstep::train
