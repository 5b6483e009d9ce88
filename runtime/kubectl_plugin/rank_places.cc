#include "runtime/kubectl_plugin/rank_places.h"

#include <algorithm>
#include <charconv>

#include "runtime/common/base/json.h"

namespace lockstep::kubectl_plugin {
namespace {

// Takes `word` and the number behind it off the front of `text`.
std::optional<int64_t> TakeNumber(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return std::nullopt;
  text.remove_prefix(word.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

}  // namespace

std::optional<NamedRank> RankNamedIn(std::string_view line) {
  if (line.starts_with('{')) {
    const Result<Json> object = ParseJson(line);
    if (!object.ok()) return std::nullopt;
    const NamedRank named{IntAt(*object, {"rank"}, -1), IntAt(*object, {"round"}, 0)};
    return named.rank >= 0 && named.round > 0 ? std::optional(named) : std::nullopt;
  }
  const auto rank = TakeNumber(line, "[rank ");
  const auto round = rank ? TakeNumber(line, " round ") : std::nullopt;
  if (!round || !line.starts_with("] ")) return std::nullopt;
  return NamedRank{*rank, *round};
}

std::optional<PodLine> SplitPrefix(std::string_view text) {
  constexpr std::string_view kBegin = "[pod/";
  const std::size_t slash = text.find('/', kBegin.size());
  const std::size_t end = text.find("] ");
  if (!text.starts_with(kBegin) || end == std::string_view::npos || slash > end) return std::nullopt;
  return PodLine{std::string(text.substr(kBegin.size(), slash - kBegin.size())), text.substr(end + 2)};
}

void RankPlaces::Take(const PodLine& line) {
  const std::optional<NamedRank> named = RankNamedIn(line.line);
  if (!named) return;
  Held& held = newest_[line.pod];
  if (named->round < held.round) return;
  if (named->round > held.round) held = {named->round, {}};
  held.ranks.insert(named->rank);
  newest_round_ = std::max(newest_round_, named->round);
}

std::optional<RankPlaces::Place> RankPlaces::PodOf(int64_t rank) const {
  std::optional<Place> best;
  for (const auto& [pod, held] : newest_) {
    if (held.ranks.contains(rank) && (!best || held.round > best->round)) best = Place{pod, held.round};
  }
  return best;
}

std::set<int64_t> RankPlaces::RanksOf(const std::string& pod) const {
  const auto found = newest_.find(pod);
  if (found == newest_.end() || found->second.round < newest_round_) return {};
  return found->second.ranks;
}

}  // namespace lockstep::kubectl_plugin
