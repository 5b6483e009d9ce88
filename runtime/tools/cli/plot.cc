#include <algorithm>
#include <filesystem>
#include <iostream>

#include "runtime/common/base/file.h"
#include "runtime/common/protocol/history.h"
#include "runtime/tools/cli/commands.h"
#include "runtime/tools/cli/history_plot.h"
#include "runtime/tools/cli/picture.h"

namespace lockstep::cli {
namespace {

using protocol::HistoryKind;

constexpr std::string_view kFileUri = "file://";

int Refuse(const std::string& problem) {
  std::cerr << "lockstep plot: " << problem << "\n";
  return 2;
}

std::string CountOf(const std::vector<protocol::HistoryRecord>& history, HistoryKind kind,
                    const std::string& noun) {
  const auto count =
      std::count_if(history.begin(), history.end(), [&](const auto& record) { return record.kind == kind; });
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

int Plot(const PlotArguments& arguments) {
  if (const auto format = FormatOfPicture(arguments.output); !format.ok())
    return Refuse(format.error().message + "; choose another with -o");
  std::string path = arguments.history;
  if (path.starts_with(kFileUri)) path.erase(0, kFileUri.size());
  if (path.find("://") != std::string::npos) {
    return Refuse(path + ": is not on this machine; fetch its " + std::string(protocol::kHistoryName) +
                  " first and name that file");
  }
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path += "/" + std::string(protocol::kHistoryName);
  if (!std::filesystem::is_regular_file(path, error)) {
    return Refuse(path + ": there is no such file; name a " + std::string(protocol::kHistoryName) +
                  " or the folder of spec.checkpoint.uri, which has one from the first checkpoint on");
  }
  const Result<std::string> text = ReadFile(path);
  if (!text.ok()) return Refuse(text.error().message);
  const protocol::HistoryText history = protocol::ReadHistory(*text);
  for (const std::string& problem : history.problems) Refuse(path + ": " + problem);
  if (!history.problems.empty()) return 2;
  const bool has_points = std::any_of(history.records.begin(), history.records.end(),
                                      [](const auto& record) { return record.kind != HistoryKind::kRound; });
  if (!has_points) return Refuse(path + ": holds no step and no evaluation, so there is nothing to plot");
  const Result<void> written = WritePicture(PlotHistory(history.records, path), arguments.output);
  if (!written.ok()) return Refuse(written.error().message + "; choose another file with -o");
  std::cout << arguments.output << ": " << CountOf(history.records, HistoryKind::kStep, "step") << ", "
            << CountOf(history.records, HistoryKind::kEvaluation, "evaluation") << ", "
            << CountOf(history.records, HistoryKind::kRound, "round") << "\n";
  return 0;
}

}  // namespace lockstep::cli
