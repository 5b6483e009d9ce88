#include "runtime/launch/run/progress_bar.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runtime/common/base/strings.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::seconds kSpeedWindow{30};
constexpr int kShortestBar = 10;
constexpr int kLongestBar = 40;

// The position in an epoch. The last epoch may be cut short by `spec.training.steps`.
struct Place {
  int64_t epoch = 1;
  int64_t epochs = 1;
  double done = 0;  // fraction of the epoch, 0 to 1
};

Place PlaceOf(const protocol::Progress& progress) {
  if (progress.step <= 0 || progress.epoch <= 0) return {};
  const double total =
      progress.epoch * static_cast<double>(progress.total_steps) / static_cast<double>(progress.step);
  const double begin = std::ceil(progress.epoch) - 1;
  return {.epoch = static_cast<int64_t>(begin) + 1,
          // An integer except for the rounding error of the division.
          .epochs = static_cast<int64_t>(std::ceil(total - 1e-6)),
          .done = std::clamp((progress.epoch - begin) / std::min(1.0, total - begin), 0.0, 1.0)};
}

std::string Bar(double done, int width) {
  const auto full = static_cast<std::size_t>(done * width);
  std::string bar(full, '=');
  if (full < static_cast<std::size_t>(width)) bar += '>';
  bar.resize(static_cast<std::size_t>(width), ' ');
  return "[" + bar + "]";
}

std::string Line(const Place& place, const std::string& numbers, int columns) {
  const std::string begin = "epoch " + std::to_string(place.epoch) + "/" + std::to_string(place.epochs) + " ";
  const std::string end = " " + std::to_string(static_cast<int>(place.done * 100)) + " %" + numbers;
  const int room = columns - static_cast<int>(begin.size() + end.size()) - 2;
  const std::string line = begin + Bar(place.done, std::clamp(room, kShortestBar, kLongestBar)) + end;
  return line.substr(0, static_cast<std::size_t>(std::max(0, columns)));
}

// 42:07, or 1:42:07
std::string Clocked(double seconds) {
  const auto whole = static_cast<int64_t>(std::lround(seconds));
  char text[32];
  if (whole < 3600) {
    std::snprintf(text, sizeof text, "%d:%02d", static_cast<int>(whole / 60), static_cast<int>(whole % 60));
  } else {
    std::snprintf(text, sizeof text, "%ld:%02d:%02d", static_cast<long>(whole / 3600),
                  static_cast<int>(whole / 60 % 60), static_cast<int>(whole % 60));
  }
  return text;
}

}  // namespace

std::string ProgressBar::Draw(const protocol::Progress& progress, SteadyTime now, int columns) {
  const Place place = PlaceOf(progress);
  const std::string speed =
      progress.samples_per_second > 0 ? "  " + FormatNumber(progress.samples_per_second) + " samples/s" : "";
  const std::string loss = progress.HasLoss() ? "  loss " + FormatNumber(progress.loss) : "";
  const std::string numbers = loss + speed;
  std::string text;
  if (epoch_ > 0 && place.epoch > epoch_)
    text = Line({.epoch = place.epoch - 1, .epochs = place.epochs, .done = 1}, numbers, columns) + "\n";
  epoch_ = place.epoch;
  return text + Line(place, numbers + TimeLeft(progress, now), columns);
}

std::string ProgressBar::TimeLeft(const protocol::Progress& progress, SteadyTime now) {
  // After a restore, steps are repeated: earlier marks are useless for the speed.
  if (!marks_.empty() && progress.step < marks_.back().step) marks_.clear();
  marks_.push_back({now, progress.step});
  while (marks_.size() > 2 && now - marks_[1].time >= kSpeedWindow) marks_.pop_front();
  const int64_t steps = progress.step - marks_.front().step;
  if (steps <= 0) return "";
  const double seconds = Seconds(now - marks_.front().time).count() / static_cast<double>(steps);
  return "  " + Clocked(seconds * static_cast<double>(progress.total_steps - progress.step)) + " left";
}

}  // namespace lockstep::launch
