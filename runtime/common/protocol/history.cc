#include "runtime/common/protocol/history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "runtime/common/base/json.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::protocol {
namespace {

constexpr std::string_view kKinds[] = {"step", "evaluation", "round"};  // in the order of HistoryKind

constexpr std::string_view kFromPeer = "peer";  // as in Synced

std::size_t IndexOf(HistoryKind kind) { return static_cast<std::size_t>(kind); }

// Enough digits for people and plots.
Json Short(double value) {
  constexpr int kDigits = 6;
  return std::isfinite(value) ? Json(std::strtod(FormatNumber(value, kDigits).c_str(), nullptr)) : Json();
}

Json ToJson(const HistoryRecord& record) {
  Json json = {{"kind", kKinds[IndexOf(record.kind)]},
               {"time", FormatTime(record.time)},
               {"round", record.round},
               {"world", record.world},
               {"step", record.step},
               {"epoch", Short(record.epoch)}};
  if (record.kind == HistoryKind::kRound) {
    json["source"] = record.source;
    if (!record.cause.empty()) json["cause"] = record.cause;
    return json;
  }
  json["loss"] = Short(record.loss);
  if (record.kind == HistoryKind::kEvaluation) {
    json["accuracy"] = Short(record.accuracy);
  } else {
    json["samplesPerSecond"] = Short(record.samples_per_second);
    json["communicationRatio"] = Short(record.communication_ratio);
  }
  return json;
}

void ReadKind(JsonReader& reader, HistoryRecord& record) {
  std::string name;
  reader.Read("kind", name);
  const auto* const found = std::find(std::begin(kKinds), std::end(kKinds), name);
  if (found == std::end(kKinds)) return reader.Violation("kind", "must be step, evaluation or round");
  record.kind = static_cast<HistoryKind>(std::distance(std::begin(kKinds), found));
}

void ReadTime(JsonReader& reader, HistoryRecord& record) {
  std::string text;
  reader.Read("time", text);
  const Result<WallTime> time = ParseTime(text);
  if (!time.ok()) return reader.Violation("time", "must be an RFC 3339 time");
  record.time = *time;
}

HistoryRecord FromJson(const Json& json, std::vector<std::string>& problems) {
  HistoryRecord record;
  JsonReader reader(json, "", problems);
  if (!problems.empty()) return record;  // not an object
  ReadKind(reader, record);
  ReadTime(reader, record);
  reader.Read("round", record.round);
  reader.Read("world", record.world);
  if (!reader.Has("step")) reader.Violation("step", "is required");
  reader.Read("step", record.step);
  if (record.step < 0) reader.Violation("step", "must be at least 0");
  reader.Read("epoch", record.epoch);
  reader.Read("loss", record.loss);
  reader.Read("accuracy", record.accuracy);
  reader.Read("samplesPerSecond", record.samples_per_second);
  reader.Read("communicationRatio", record.communication_ratio);
  reader.Read("source", record.source);
  reader.Read("cause", record.cause);
  return record;
}

// Keeps the first record of each `stride` steps, and the newest of all.
void KeepEvery(int64_t stride, HistoryKind kind, std::vector<HistoryRecord>& history) {
  int64_t kept = -1;
  const HistoryRecord* const newest = &history.back();
  std::erase_if(history, [&](const HistoryRecord& record) {
    if (record.kind != kind) return false;
    const bool is_repeated = std::exchange(kept, record.step / stride) == record.step / stride;
    return is_repeated && &record != newest;
  });
}

// With powers of two the result is the same, whether the history is thinned once or repeatedly, by one
// process or several.
void Thin(std::vector<HistoryRecord>& history) {
  if (history.size() <= kMostRecords) return;
  std::array<int64_t, std::size(kKinds)> strides{};
  strides.fill(1);
  while (history.size() > kMostRecords / 2) {
    std::array<std::size_t, std::size(kKinds)> counts{};
    for (const HistoryRecord& record : history) ++counts.at(IndexOf(record.kind));
    const auto most = std::distance(counts.begin(), std::max_element(counts.begin(), counts.end()));
    int64_t& stride = strides.at(static_cast<std::size_t>(most));
    stride *= 2;
    KeepEvery(stride, static_cast<HistoryKind>(most), history);
  }
}

// The same event, recorded by two processes.
bool IsSame(const HistoryRecord& a, const HistoryRecord& b) {
  if (a.kind != b.kind || a.step != b.step) return false;
  return a.kind != HistoryKind::kRound || a.round == b.round;
}

// The process was in no round while others made this step: it returned with a peer's state.
bool WasInNoRound(const std::vector<HistoryRecord>& mine, int64_t step) {
  for (std::size_t i = 1; i < mine.size(); ++i) {
    const bool came_back = mine[i].kind == HistoryKind::kRound && mine[i].source == kFromPeer;
    if (came_back && mine[i - 1].step < step && step <= mine[i].step) return true;
  }
  return false;
}

}  // namespace

void Append(std::vector<HistoryRecord>& history, HistoryRecord record) {
  history.push_back(std::move(record));
  Thin(history);
}

std::vector<HistoryRecord> Continue(const std::vector<HistoryRecord>& stored,
                                    const std::vector<HistoryRecord>& mine) {
  if (mine.empty()) return stored;
  const int64_t begin = mine.front().step;
  std::vector<HistoryRecord> all;
  std::copy_if(stored.begin(), stored.end(), std::back_inserter(all), [&](const HistoryRecord& old) {
    const bool is_before = begin > 0 && old.step <= begin;
    if (!is_before && !WasInNoRound(mine, old.step)) return false;
    return std::none_of(mine.begin(), mine.end(),
                        [&](const HistoryRecord& record) { return IsSame(old, record); });
  });
  all.insert(all.end(), mine.begin(), mine.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const HistoryRecord& a, const HistoryRecord& b) { return a.step < b.step; });
  Thin(all);
  return all;
}

std::string EncodeHistory(const std::vector<HistoryRecord>& history) {
  std::string text;
  for (const HistoryRecord& record : history) text += DumpJson(ToJson(record)) + "\n";
  return text;
}

HistoryText ReadHistory(std::string_view text) {
  HistoryText history;
  int64_t number = 0;
  for (const std::string& line : Split(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    std::vector<std::string> problems;
    const Result<Json> json = ParseJson(line);
    HistoryRecord record;
    if (json.ok()) {
      record = FromJson(*json, problems);
    } else {
      problems.emplace_back("is not JSON: " + Truncate(line, 40));
    }
    if (problems.empty()) history.records.push_back(std::move(record));
    for (const std::string& problem : problems)
      history.problems.push_back("line " + std::to_string(number) + ": " + problem);
  }
  return history;
}

}  // namespace lockstep::protocol
