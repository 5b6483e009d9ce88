#include "runtime/tools/cli/history_plot.h"

#include <algorithm>
#include <cmath>

#include "runtime/common/base/strings.h"

namespace lockstep::cli {
namespace {

using protocol::HistoryKind;
using protocol::HistoryRecord;
using History = std::vector<HistoryRecord>;

// Pixels.
constexpr double kWidth = 900;
constexpr double kLeft = 70;
constexpr double kRight = kWidth - 20;
constexpr double kTop = 60;  // below the title and the names of rounds
constexpr double kChart = 180;
constexpr double kGap = 50;
constexpr double kLabelRoom = 64;  // for the name of a round

constexpr const char* kStyle =
    "text{font:12px sans-serif;fill:#333}.tick{fill:#777}.grid{stroke:#e5e5e5}.frame{fill:none;stroke:#999}"
    ".steps{fill:none;stroke:#1f77b4}.tests{fill:none;stroke:#ff7f0e}circle.steps{fill:#1f77b4}"
    "circle.tests{fill:#ff7f0e}.round line{stroke:#888;stroke-dasharray:4 3}.restart line{stroke:#d62728}";

struct Point {
  double x = 0;
  double y = 0;
};

// Training steps or evaluations.
struct Series {
  HistoryKind kind = HistoryKind::kStep;
  double HistoryRecord::*value = nullptr;
};

struct Chart {
  std::string name;
  std::vector<Series> series;
};

// Maps numbers to pixels.
struct Scale {
  double low = 0;
  double high = 1;
  double first_pixel = 0;
  double last_pixel = 1;

  [[nodiscard]] double At(double value) const {
    return first_pixel + (value - low) / (high - low) * (last_pixel - first_pixel);
  }
};

std::string Pixel(double value) { return FormatNumber(std::round(value * 10) / 10, 6); }

std::string Attribute(const char* name, double pixel) {
  return std::string(" ") + name + "=\"" + Pixel(pixel) + "\"";
}

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      // XML allows no other control characters.
      default: escaped += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return escaped;
}

std::string Text(double x, double y, const char* anchor, const std::string& text, const char* style = "") {
  return "<text class=\"" + std::string(style) + "\"" + Attribute("x", x) + Attribute("y", y) +
         " text-anchor=\"" + anchor + "\">" + Escaped(text) + "</text>\n";
}

std::string Line(double x1, double y1, double x2, double y2, const char* style) {
  return "<line class=\"" + std::string(style) + "\"" + Attribute("x1", x1) + Attribute("y1", y1) +
         Attribute("x2", x2) + Attribute("y2", y2) + "/>\n";
}

Scale ScaleOf(double low, double high, double first_pixel, double last_pixel) {
  if (low == high) {  // a single value
    const double room = low == 0 ? 1 : std::abs(low) / 2;
    low -= room;
    high += room;
  }
  return {low, high, first_pixel, last_pixel};
}

// About five round numbers.
std::vector<double> TicksOf(const Scale& scale) {
  constexpr double kCount = 5;
  const double rough = (scale.high - scale.low) / kCount;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double part = rough / power;
  const double step = power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
  const double first = std::ceil(scale.low / step);
  const double count = std::floor(scale.high / step) - first;
  std::vector<double> ticks;
  for (int i = 0; i <= count; ++i) ticks.push_back((first + i) * step);
  return ticks;
}

class Picture {
 public:
  Picture(const History& history, const std::string& title) : history_(history) {
    const auto [first, last] =
        std::minmax_element(history.begin(), history.end(),
                            [](const HistoryRecord& a, const HistoryRecord& b) { return a.step < b.step; });
    if (first != history.end()) {
      x_ = ScaleOf(static_cast<double>(first->step), static_cast<double>(last->step), kLeft, kRight);
    }
    body_ = Text(kLeft, 22, "start", title);
  }

  std::string Draw() {
    const std::vector<Chart> charts = {
        {"loss",
         {{HistoryKind::kStep, &HistoryRecord::loss}, {HistoryKind::kEvaluation, &HistoryRecord::loss}}},
        {"accuracy", {{HistoryKind::kEvaluation, &HistoryRecord::accuracy}}},
        {"samples/s", {{HistoryKind::kStep, &HistoryRecord::samples_per_second}}}};
    for (const Chart& chart : charts) Add(chart);
    AddRounds();
    AddLegend();
    return "<svg xmlns=\"http://www.w3.org/2000/svg\"" + Attribute("width", kWidth) +
           Attribute("height", bottom_ + 60) + ">\n<style>" + kStyle +
           "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" + body_ + "</svg>\n";
  }

 private:
  // Unbroken pieces: a non-finite value is a gap.
  [[nodiscard]] std::vector<std::vector<Point>> PiecesOf(const Series& series) const {
    std::vector<std::vector<Point>> pieces(1);
    for (const HistoryRecord& record : history_) {
      if (record.kind != series.kind) continue;
      const double value = record.*series.value;
      if (std::isfinite(value)) {
        pieces.back().push_back({static_cast<double>(record.step), value});
      } else if (!pieces.back().empty()) {
        pieces.emplace_back();
      }
    }
    if (pieces.back().empty()) pieces.pop_back();
    return pieces;
  }

  void Add(const Chart& chart) {
    std::vector<double> values;
    for (const Series& series : chart.series) {
      for (const auto& piece : PiecesOf(series)) {
        for (const Point& point : piece) values.push_back(point.y);
      }
    }
    if (values.empty()) return;
    const double top = charts_ == 0 ? kTop : bottom_ + kGap;
    ++charts_;
    bottom_ = top + kChart;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const Scale y = ScaleOf(*low, *high, bottom_, top);
    body_ += "<g class=\"chart\" id=\"" + chart.name + "\">\n";
    AddFrame(chart.name, y);
    for (const Series& series : chart.series) AddSeries(series, y);
    body_ += "</g>\n";
  }

  void AddFrame(const std::string& name, const Scale& y) {
    for (const double tick : TicksOf(y)) {
      body_ += Line(kLeft, y.At(tick), kRight, y.At(tick), "grid");
      body_ += Text(kLeft - 6, y.At(tick) + 4, "end", FormatNumber(tick, 6), "tick");
    }
    for (const double tick : TicksOf(x_)) {
      if (tick != std::round(tick)) continue;  // steps are integers
      body_ += Line(x_.At(tick), y.last_pixel, x_.At(tick), y.first_pixel, "grid");
      body_ += Text(x_.At(tick), y.first_pixel + 16, "middle", FormatNumber(tick, 12), "tick");
    }
    body_ += "<rect class=\"frame\"" + Attribute("x", kLeft) + Attribute("y", y.last_pixel) +
             Attribute("width", kRight - kLeft) + Attribute("height", kChart) + "/>\n";
    body_ += Text(kLeft + 8, y.last_pixel + 16, "start", name);
  }

  void AddSeries(const Series& series, const Scale& y) {
    const bool is_test = series.kind == HistoryKind::kEvaluation;
    const std::string style = is_test ? "tests" : "steps";
    for (const auto& piece : PiecesOf(series)) {
      body_ += "<polyline class=\"" + style + "\" points=\"";
      for (const Point& point : piece)
        body_ += (&point == piece.data() ? "" : " ") + Pixel(x_.At(point.x)) + "," + Pixel(y.At(point.y));
      body_ += "\"/>\n";
      if (!is_test && piece.size() > 1) continue;
      // Evaluations are few, and a line through a single point is invisible.
      for (const Point& point : piece) {
        body_ += "<circle class=\"" + style + "\"" + Attribute("cx", x_.At(point.x)) +
                 Attribute("cy", y.At(point.y)) + " r=\"3\"><title>step " + FormatNumber(point.x, 12) + ": " +
                 FormatNumber(point.y, 6) + "</title></circle>\n";
      }
    }
  }

  void AddRounds() {
    double labelled = -kLabelRoom;
    for (const HistoryRecord& record : history_) {
      if (record.kind != HistoryKind::kRound) continue;
      const bool is_restart = record.source == "checkpoint";
      const double x = x_.At(static_cast<double>(record.step));
      const std::string ranks = std::to_string(record.world) + (record.world == 1 ? " rank" : " ranks");
      std::string what = "round " + std::to_string(record.round) + ", " + ranks + ", from step " +
                         std::to_string(record.step) + (is_restart ? ", from a checkpoint" : "");
      if (!record.cause.empty()) what += ": " + record.cause;
      body_ += std::string("<g class=\"") + (is_restart ? "round restart" : "round") + "\"><title>" +
               Escaped(what) + "</title>" + Line(x, kTop - 14, x, bottom_, "");
      if (x - labelled >= kLabelRoom) {
        labelled = x;
        body_ += Text(x, kTop - 18, x + kLabelRoom > kRight ? "end" : "start", ranks);
      }
      body_ += "</g>\n";
    }
  }

  void AddLegend() {
    const double y = bottom_ + 44;
    double x = kLeft;
    const auto add = [&](const char* group, const char* style, const char* text) {
      body_ += std::string("<g class=\"") + group + "\">" + Line(x, y - 4, x + 24, y - 4, style) +
               Text(x + 30, y, "start", text) + "</g>\n";
      x += 200;
    };
    add("legend", "steps", "training, over steps");
    add("legend", "tests", "evaluation");
    add("legend round", "", "a round begins");
    add("legend round restart", "", "… from a checkpoint");
  }

  const History& history_;
  Scale x_{0, 1, kLeft, kRight};
  std::string body_;
  int charts_ = 0;
  double bottom_ = kTop;  // of the lowest chart
};

}  // namespace

std::string PlotHistory(const History& history, const std::string& title) {
  return Picture(history, title).Draw();
}

}  // namespace lockstep::cli
