#include "runtime/launch/process/log_lines.h"

#include <utility>

namespace lockstep::launch {
namespace {

bool LooksLikeJsonObject(const std::string& line) { return line.starts_with("{\"") && line.ends_with('}'); }

// base/log.h begins its records with the time, in microseconds, and the level.
bool IsOwnInfo(std::string_view line) {
  constexpr std::string_view kTime = R"({"time":"2026-11-26T02:20:57.262678Z",)";
  return line.starts_with(R"({"time":")") && line.size() > kTime.size() &&
         line.substr(kTime.size()).starts_with(R"("level":"info","message":")");
}

// `"key":value,`; empty if the object already has the key.
std::string FieldFor(const std::string& object, const std::string& key, int64_t value) {
  const std::string quoted = "\"" + key + "\":";
  return object.find(quoted) == std::string::npos ? quoted + std::to_string(value) + "," : "";
}

}  // namespace

std::vector<std::string> LineCutter::Add(std::string_view bytes) {
  pending_.append(bytes);
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = pending_.find('\n', begin);
    const std::size_t length = (end == std::string::npos ? pending_.size() : end) - begin;
    if (length > kLongestLine) {
      lines.push_back(pending_.substr(begin, kLongestLine));
      begin += kLongestLine;
    } else if (end != std::string::npos) {
      lines.push_back(pending_.substr(begin, length));
      begin = end + 1;
    } else {
      break;
    }
  }
  pending_.erase(0, begin);
  return lines;
}

std::optional<std::string> LineCutter::Rest() {
  if (pending_.empty()) return std::nullopt;
  return std::exchange(pending_, {});
}

void LastLines::Add(std::string line) {
  if (IsOwnInfo(line)) return;
  lines_.push_back(std::move(line));
  if (lines_.size() > kMostLines) lines_.pop_front();
}

std::string LastLines::Text() const {
  std::string text;
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    if (text.empty()) {
      text = line->size() > kMostBytes ? line->substr(line->size() - kMostBytes) : *line;
    } else if (line->size() + 1 + text.size() <= kMostBytes) {
      text.insert(0, *line + "\n");
    } else {
      break;
    }
  }
  return text;
}

std::string Labelled(const std::string& line, const RankPlace& place) {
  const bool placed = place.round > 0;
  if (LooksLikeJsonObject(line)) {
    const std::string fields = placed
                                   ? FieldFor(line, "rank", place.rank) + FieldFor(line, "round", place.round)
                                   : FieldFor(line, "local_rank", place.local_rank);
    return "{" + fields + line.substr(1);
  }
  const std::string label =
      placed ? "[rank " + std::to_string(place.rank) + " round " + std::to_string(place.round) + "] "
             : "[local rank " + std::to_string(place.local_rank) + "] ";
  return label + line;
}

}  // namespace lockstep::launch
