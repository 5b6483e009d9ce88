#include "runtime/common/base/suggestion.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace lockstep {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Optimal string alignment: insertions, deletions, replacements, and swaps of neighbours.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last;
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool is_equal = Lower(a[i - 1]) == Lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (is_equal ? 0 : 1)});
      const bool is_swapped =
          i > 1 && j > 1 && Lower(a[i - 1]) == Lower(b[j - 2]) && Lower(a[i - 2]) == Lower(b[j - 1]);
      if (is_swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string> ClosestName(std::string_view name, const std::vector<std::string>& candidates) {
  // Names of the API have at most 63 characters. Longer texts are not typing errors, and the cost is the
  // product of the lengths.
  constexpr std::size_t kLongest = 128;
  if (name.size() > kLongest) return std::nullopt;
  std::optional<std::string> closest;
  std::size_t least = name.size() / 3 + 1;
  for (const std::string& candidate : candidates) {
    if (candidate == name || candidate.size() > kLongest) continue;
    const std::size_t distance = EditDistance(name, candidate);
    if (distance >= least) continue;
    least = distance;
    closest = candidate;
  }
  return closest;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates) {
  const auto closest = ClosestName(name, candidates);
  return closest ? ": did you mean \"" + *closest + "\"?" : "";
}

}  // namespace lockstep
