#pragma once
// Which rank holds which part of a divided state, as index ranges; HeldShards uses it for its decisions.
// Element indices run over all trained parameters, one parameter after another. Pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/train/state/version.h"

namespace lockstep::train {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  [[nodiscard]] int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

[[nodiscard]] inline std::size_t IndexOf(int rank) { return static_cast<std::size_t>(rank); }
[[nodiscard]] int64_t SizeOf(const std::vector<Range>& ranges);
// The intersection, in the order of `a`. Each piece is inside one range of each argument.
[[nodiscard]] std::vector<Range> Common(const std::vector<Range>& a, const std::vector<Range>& b);
// `size` elements from the `begin`th on, counted in the order of the ranges; fewer at the end.
[[nodiscard]] std::vector<Range> Section(const std::vector<Range>& ranges, int64_t begin, int64_t size);
[[nodiscard]] std::vector<Range> Without(const std::vector<Range>& ranges, const Range& taken);

// Near-equal parts. A cut inside a tensor is at a multiple of 16 of its elements: kernels process the
// elements that do not fill a vector differently, so other cuts would round elements differently than the
// whole tensor does.
[[nodiscard]] std::vector<Range> CutEvenly(std::span<const int64_t> sizes, int parts);
// Cuts between whole tensors, each at the one nearest to a near-equal cut. A part may be empty.
[[nodiscard]] std::vector<Range> CutBetweenTensors(std::span<const int64_t> sizes, int parts);

// Ranks of a sharding group, which hold the whole state together: the smallest divisor of `holders` that is
// not smaller than `at_least`, so that all groups have the same size and no rank holds more than it has memory
// for. 0: one group of all.
[[nodiscard]] int GroupSize(int holders, int at_least);

struct Copies {
  int copies = 1;        // number of ranks that hold each part
  int ranks_in_pod = 1;  // ranks that may be lost at once
};

// The parts, one per holder, that the rank at a position holds: its own part first, then copies of the parts
// of ranks in the following pods of its group, so that copies survive the loss of a pod if there are enough
// pods. Each part is held as many times as `copies` says, or by all holders if they are fewer; the groups
// count as copies of each other. Positions are ordered by pod. `group` is the size of the groups.
[[nodiscard]] std::vector<int> PartsHeldBy(int position, int holders, int group, const Copies& copies);

struct Holding {
  Version version;
  Range range;

  friend bool operator==(const Holding&, const Holding&) = default;
};

// What the other ranks know about a rank.
struct Holder {
  Version version;  // from which it would continue
  std::vector<Holding> held;
};

// The elements of a version that each rank sends, so that each element is sent once. Together they are less
// than [0, total) if elements are lost.
[[nodiscard]] std::vector<std::vector<Range>> GivenBy(const std::vector<Holder>& holders,
                                                      const Version& version, int64_t total);
// The assigned ranges that each rank has to receive: a rank keeps a range that it holds exactly.
[[nodiscard]] std::vector<std::vector<Range>> WantedBy(const std::vector<Holder>& holders,
                                                       const Version& version,
                                                       std::vector<std::vector<Range>> assigned);
// All elements of the divided state.
struct Elements {
  int64_t total = 0;
  bool begin_at_zero = true;  // before the first step nothing needs to be held, because all are zero
};
// The elements of a version that no rank holds.
[[nodiscard]] std::vector<Range> MissingOf(const std::vector<Holder>& holders, const Version& version,
                                           const Elements& all);
// The newest version from which training can continue: it is the version of a rank, and all elements are
// held.
[[nodiscard]] std::optional<Version> NewestWhole(const std::vector<Holder>& holders, const Elements& all);

}  // namespace lockstep::train
