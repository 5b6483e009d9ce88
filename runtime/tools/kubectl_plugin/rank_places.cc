#include "runtime/tools/kubectl_plugin/rank_places.h"

#include <algorithm>
#include <charconv>

#include "runtime/common/base/json.h"

namespace lockstep::kubectl_plugin {
namespace {

// Removes `word` and the number after it from the front of `text`.
std::optional<int64_t> TakeNumber(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return std::nullopt;
  text.remove_prefix(word.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

// The supervisor writes it as a number, ranks write it as a string.
std::optional<int64_t> LocalRankOf(const Json& record) {
  const Json* found = FindJson(record, {"local_rank"});
  if (found == nullptr) return std::nullopt;
  if (found->is_number_integer()) return found->get<int64_t>();
  const auto text = found->is_string() ? found->get<std::string>() : "";
  std::string_view rest = text;
  const auto number = TakeNumber(rest, "");
  return rest.empty() ? number : std::nullopt;
}

// The process that a line without a rank is about.
std::optional<int64_t> LocalRankIn(std::string_view line) {
  if (line.starts_with("[local rank ")) return TakeNumber(line, "[local rank ");
  if (!line.starts_with('{')) return std::nullopt;
  const Result<Json> record = ParseJson(line);
  return record.ok() ? LocalRankOf(*record) : std::nullopt;
}

}  // namespace

std::optional<NamedRank> RankNamedIn(std::string_view line) {
  if (line.starts_with('{')) {
    const Result<Json> object = ParseJson(line);
    if (!object.ok()) return std::nullopt;
    const NamedRank named{IntAt(*object, {"rank"}, -1), IntAt(*object, {"round"}, 0), LocalRankOf(*object)};
    return named.rank >= 0 && named.round > 0 ? std::optional(named) : std::nullopt;
  }
  const auto rank = TakeNumber(line, "[rank ");
  const auto round = rank ? TakeNumber(line, " round ") : std::nullopt;
  if (!round || !line.starts_with("] ")) return std::nullopt;
  return NamedRank{*rank, *round, {}};
}

bool MayBeOfRank(std::string_view line, int64_t rank, std::optional<int64_t> local_rank) {
  if (const auto named = RankNamedIn(line)) return named->rank == rank;
  const auto found = local_rank ? LocalRankIn(line) : std::nullopt;
  return !found || *found == *local_rank;
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
  std::optional<int64_t>& local_rank = held.ranks[named->rank];
  if (named->local_rank) local_rank = named->local_rank;
  newest_round_ = std::max(newest_round_, named->round);
}

std::optional<RankPlaces::Place> RankPlaces::PodOf(int64_t rank) const {
  std::optional<Place> best;
  for (const auto& [pod, held] : newest_) {
    const auto found = held.ranks.find(rank);
    if (found != held.ranks.end() && (!best || held.round > best->round))
      best = Place{pod, held.round, found->second};
  }
  return best;
}

std::set<int64_t> RankPlaces::RanksOf(const std::string& pod) const {
  const auto found = newest_.find(pod);
  if (found == newest_.end() || found->second.round < newest_round_) return {};
  std::set<int64_t> ranks;
  for (const auto& [rank, local_rank] : found->second.ranks) ranks.insert(rank);
  return ranks;
}

}  // namespace lockstep::kubectl_plugin
