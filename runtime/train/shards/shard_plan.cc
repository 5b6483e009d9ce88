#include "runtime/train/shards/shard_plan.h"

#include <algorithm>
#include <numeric>

namespace lockstep::train {
namespace {

constexpr int64_t kCutMultiple = 16;

// Where a part of equal ones ends.
int64_t EndOf(int part, int parts, int64_t total) {
  return static_cast<int64_t>(static_cast<double>(total) * part / parts);
}

}  // namespace

int64_t SizeOf(const std::vector<Range>& ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), int64_t{0},
                         [](int64_t sum, const Range& range) { return sum + range.size(); });
}

std::vector<Range> Common(const std::vector<Range>& a, const std::vector<Range>& b) {
  std::vector<Range> common;
  for (const Range& one : a) {
    for (const Range& other : b) {
      const Range both{std::max(one.begin, other.begin), std::min(one.end, other.end)};
      if (both.begin < both.end) common.push_back(both);
    }
  }
  return common;
}

std::vector<Range> Section(const std::vector<Range>& ranges, int64_t begin, int64_t size) {
  std::vector<Range> section;
  int64_t before = 0;  // elements of the preceding ranges
  for (const Range& range : ranges) {
    const Range piece{range.begin + std::max<int64_t>(0, begin - before),
                      std::min(range.end, range.begin + begin + size - before)};
    if (piece.begin < piece.end) section.push_back(piece);
    before += range.size();
  }
  return section;
}

std::vector<Range> Without(const std::vector<Range>& ranges, const Range& taken) {
  std::vector<Range> left;
  for (const Range& range : ranges) {
    const Range before{range.begin, std::min(range.end, taken.begin)};
    const Range after{std::max(range.begin, taken.end), range.end};
    if (before.begin < before.end) left.push_back(before);
    if (after.begin < after.end) left.push_back(after);
  }
  return left;
}

int GroupSize(int holders, int at_least) {
  if (at_least == 0) return holders;
  int size = std::min(at_least, holders);
  while (holders % size != 0) ++size;
  return size;
}

std::vector<int> PartsHeldBy(int position, int holders, int group, const Copies& copies) {
  const int groups = holders / group;
  const int copies_in_group = std::min((copies.copies + groups - 1) / groups, group);
  // While ranks leave, pods may have different numbers of ranks; then copies are kept on neighbouring ranks.
  const int stride = group % copies.ranks_in_pod == 0 ? copies.ranks_in_pod : 1;
  const int first = position / group * group;
  std::vector<int> parts;
  for (int copy = 0; copy < copies_in_group; ++copy) {
    const int distance = copy * stride;
    // After one turn over all pods, continue with the next rank of each pod.
    parts.push_back(first + (position - first + distance + distance / group) % group);
  }
  return parts;
}

std::vector<Range> CutEvenly(std::span<const int64_t> sizes, int parts) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<Range> cut;
  std::size_t tensor = 0;
  int64_t tensor_begin = 0;
  int64_t begin = 0;
  for (int part = 1; part <= parts; ++part) {
    const int64_t wanted = EndOf(part, parts, total);
    while (tensor < sizes.size() && tensor_begin + sizes[tensor] <= wanted) tensor_begin += sizes[tensor++];
    const int64_t within = (wanted - tensor_begin) / kCutMultiple * kCutMultiple;
    const int64_t end = part == parts ? total : std::max(begin, tensor_begin + within);
    cut.push_back({begin, end});
    begin = end;
  }
  return cut;
}

std::vector<Range> CutBetweenTensors(std::span<const int64_t> sizes, int parts) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<Range> cut;
  std::size_t tensor = 0;
  int64_t begin = 0;
  int64_t end = 0;
  for (int part = 1; part <= parts; ++part) {
    const int64_t wanted = EndOf(part, parts, total);
    // Takes a tensor if the cut is nearer to its end than to its begin.
    while (tensor < sizes.size() && (part == parts || end + sizes[tensor] - wanted <= wanted - end))
      end += sizes[tensor++];
    cut.push_back({begin, end});
    begin = end;
  }
  return cut;
}

std::vector<std::vector<Range>> GivenBy(const std::vector<Holder>& holders, const Version& version,
                                        int64_t total) {
  std::vector<Range> open = {{0, total}};
  std::vector<std::vector<Range>> given;
  for (const Holder& holder : holders) {
    std::vector<Range>& mine = given.emplace_back();
    for (const Holding& holding : holder.held) {
      if (holding.version != version) continue;
      for (const Range& range : Common({holding.range}, open)) mine.push_back(range);
      open = Without(open, holding.range);
    }
  }
  return given;
}

std::vector<std::vector<Range>> WantedBy(const std::vector<Holder>& holders, const Version& version,
                                         std::vector<std::vector<Range>> assigned) {
  for (std::size_t rank = 0; rank < holders.size(); ++rank) {
    const std::vector<Holding>& held = holders[rank].held;
    std::erase_if(assigned.at(rank), [&](const Range& range) {
      return std::find(held.begin(), held.end(), Holding{version, range}) != held.end();
    });
  }
  return assigned;
}

std::vector<Range> MissingOf(const std::vector<Holder>& holders, const Version& version,
                             const Elements& all) {
  if (all.total == 0 || (all.begin_at_zero && version.step == 0)) return {};
  std::vector<Range> open = {{0, all.total}};
  for (const Holder& holder : holders) {
    for (const Holding& holding : holder.held) {
      if (holding.version == version) open = Without(open, holding.range);
    }
  }
  return open;
}

std::optional<Version> NewestWhole(const std::vector<Holder>& holders, const Elements& all) {
  std::optional<Version> newest;
  for (const Holder& holder : holders) {
    if (holder.version.step < 0 || (newest.has_value() && holder.version <= *newest)) continue;
    if (MissingOf(holders, holder.version, all).empty()) newest = holder.version;
  }
  // Step 0 may be complete without any holder, but a rank that had more steps has a checkpoint to return to.
  const auto is_further = [](const Holder& holder) { return holder.version.step > 0; };
  if (newest.has_value() && newest->step == 0 && std::any_of(holders.begin(), holders.end(), is_further))
    return std::nullopt;
  return newest;
}

}  // namespace lockstep::train
