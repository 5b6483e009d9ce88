#include "runtime/launch/process/log_lines.h"

#include <algorithm>
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

std::vector<OutputLine> LineCutter::Add(std::string_view bytes, SteadyTime now) {
  pending_.append(bytes);
  std::vector<OutputLine> lines;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = std::min(pending_.find_first_of("\r\n", begin), pending_.size());
    const std::size_t length = end - begin;
    if (length > kLongestLine) {
      lines.push_back({pending_.substr(begin, kLongestLine)});
      begin += kLongestLine;
      continue;
    }
    const bool is_return = end < pending_.size() && pending_[end] == '\r';
    if (end + (is_return ? 1 : 0) >= pending_.size()) break;  // a newline may follow the carriage return
    const bool is_overwritten = is_return && pending_[end + 1] != '\n';
    std::string text = pending_.substr(begin, length);
    if (!is_overwritten || MayShow(text, now)) lines.push_back({std::move(text), is_overwritten});
    begin = end + (is_return && !is_overwritten ? 2 : 1);
  }
  pending_.erase(0, begin);
  return lines;
}

bool LineCutter::MayShow(std::string_view overwritten, SteadyTime now) {
  const bool is_blank = overwritten.find_first_not_of(' ') == std::string_view::npos;
  if (is_blank || (shown_at_ && now - *shown_at_ < kPause)) return false;
  shown_at_ = now;
  return true;
}

std::optional<std::string> LineCutter::Rest() {
  std::string rest = std::exchange(pending_, {});
  if (rest.ends_with('\r')) rest.pop_back();
  return rest.empty() ? std::nullopt : std::optional(std::move(rest));
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
