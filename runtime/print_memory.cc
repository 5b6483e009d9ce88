#include "runtime/print_memory.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>

#include "runtime/common/base/json.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/command_line/text.h"
#include "runtime/data/dataset.h"

namespace lockstep {
namespace {

using train::StateMemoryReport;

// A model of tokens follows from the manifest alone, others from the first sample.
Result<ModelInput> InputOf(const api::TrainingSpec& training) {
  const api::GptSpec& gpt = training.model.gpt;
  if (training.model.name == api::ModelName::kGpt)
    return ModelInput{{gpt.context_length}, gpt.vocabulary_size};
  LOCKSTEP_TRY(const data::Datasets datasets, data::OpenDatasets(training));
  return ModelInput{datasets.train->sample_shape(), datasets.train->classes()};
}

std::string BytesText(int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1000 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  return bytes == 0 ? "" : FormatNumber(size, 3) + " " + kUnits.at(unit);
}

void PrintText(const StateMemoryReport& report, const api::TrainingSpec& training) {
  std::cout << "Model " << api::NameOf(training.model.name) << ": " << report.trained_parameters
            << " trained parameters; optimizer " << api::NameOf(training.optimizer.name) << ".\n\n";
  std::vector<std::vector<std::string>> rows = {
      {"STRATEGY", "RANKS", "PARAMETERS", "GRADIENTS", "OPTIMIZER", "UNDO", "GATHERED", "TOTAL", "HOST"}};
  for (const auto& [strategy, ranks, memory] : report.sizes)
    rows.push_back({strategy, std::to_string(ranks), BytesText(memory.parameters),
                    BytesText(memory.gradients), BytesText(memory.optimizer), BytesText(memory.undo),
                    BytesText(memory.gathered), BytesText(memory.total()), BytesText(memory.host)});
  for (const std::string& line : command_line::Columns(rows)) std::cout << line << "\n";
  std::cout << "\nOf one rank, on the device that holds most; HOST: in host memory, in addition. Activations "
               "and batches are "
               "not counted.\n";
  for (const auto& [strategy, reason] : report.left_out)
    std::cout << strategy << " is left out: " << reason << "\n";
}

void PrintJson(const StateMemoryReport& report) {
  Json json = {{"trainedParameters", report.trained_parameters},
               {"otherElements", report.other_elements},
               {"sizes", Json::array()},
               {"leftOut", Json::array()}};
  for (const auto& [strategy, ranks, memory] : report.sizes)
    json["sizes"].push_back({{"strategy", strategy},
                             {"ranks", ranks},
                             {"parameters", memory.parameters},
                             {"gradients", memory.gradients},
                             {"optimizer", memory.optimizer},
                             {"undo", memory.undo},
                             {"gathered", memory.gathered},
                             {"total", memory.total()},
                             {"host", memory.host}});
  for (const auto& [strategy, reason] : report.left_out)
    json["leftOut"].push_back({{"strategy", strategy}, {"reason", reason}});
  std::cout << json.dump(2) << "\n";
}

int Fail(const Error& error) {
  std::cerr << "lockstep memory: " << error.message << "\n";
  return 1;
}

}  // namespace

int PrintMemory(const api::TrainingSpec& training, const train::PodShape& pod,
                const std::vector<std::string>& arguments) {
  std::vector<int> worlds;
  std::transform(arguments.begin() + 1, arguments.end(), std::back_inserter(worlds),
                 [](const std::string& text) { return std::stoi(text); });
  const Result<ModelInput> input = InputOf(training);
  if (!input.ok()) return Fail(input.error());
  const auto report = train::ReportMemory(training, *input, worlds, pod);
  if (!report.ok()) return Fail(report.error());
  arguments.front() == "json" ? PrintJson(*report) : PrintText(*report, training);
  return 0;
}

}  // namespace lockstep
