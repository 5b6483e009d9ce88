#include "runtime/common/api/exclusions.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <variant>

#include "runtime/common/base/strings.h"

namespace lockstep::api {
namespace {

using std::string_view;

// A choice that something else excludes, or that excludes something else.
struct Choice {
  string_view field;    // below spec.training
  string_view without;  // what the field must be instead
  string_view with;     // the field's value, in a message
  bool (*is_made)(const TrainingSpec&);
  string_view not_made;  // CEL, at spec.training
};

constexpr Choice kWorld{
    .field = "determinism",
    .without = "must be None",
    .with = "determinism is World",
    .is_made = [](const TrainingSpec& spec) { return spec.determinism == Determinism::kWorld; },
    .not_made = "self.determinism == 'None'"};
constexpr Choice kBySpeed{.field = "balance",
                          .without = "must be Equal",
                          .with = "balance is Speed",
                          .is_made = [](const TrainingSpec& spec) { return spec.balance == Balance::kSpeed; },
                          .not_made = "self.balance == 'Equal'"};
constexpr Choice kCompression{
    .field = "sync.compression",
    .without = "must be absent",
    .with = "sync.compression is set",
    .is_made = [](const TrainingSpec& spec) { return spec.sync.compression.has_value(); },
    .not_made = "!has(self.sync) || !has(self.sync.compression)"};
constexpr Choice kSkipsRecords{
    .field = "data.onCorruptRecord",
    .without = "must be Fail",
    .with = "data.onCorruptRecord is Skip",
    .is_made = [](const TrainingSpec& spec) { return spec.data.on_corrupt_record == OnCorruptRecord::kSkip; },
    .not_made = "self.data.onCorruptRecord == 'Fail'"};
constexpr Choice kWeightAverage{
    .field = "optimizer.weightAverage",
    .without = "must be absent",
    .with = "optimizer.weightAverage is set",
    .is_made = [](const TrainingSpec& spec) { return spec.optimizer.weight_average.has_value(); },
    .not_made = "!has(self.optimizer) || !has(self.optimizer.weightAverage)"};
constexpr Choice kNotElementwise{
    .field = "optimizer.name",
    .without = "must not be lamb or muon",
    .with = "optimizer.name is lamb or muon",
    .is_made = [](const TrainingSpec& spec) { return !IsElementwise(spec.optimizer.name); },
    .not_made = "!has(self.optimizer) || !(self.optimizer.name in ['lamb', 'muon'])"};
constexpr Choice kTorchscript{
    .field = "model.name",
    .without = "must not be torchscript",
    .with = "model.name is torchscript",
    .is_made = [](const TrainingSpec& spec) { return spec.model.name == ModelName::kTorchscript; },
    .not_made = "self.model.name != 'torchscript'"};
constexpr Choice kCudaGraph{.field = "cudaGraph",
                            .without = "must be false",
                            .with = "cudaGraph is true",
                            .is_made = [](const TrainingSpec& spec) { return spec.cuda_graph; },
                            .not_made = "!self.cudaGraph"};
constexpr Choice kGradientCheckpointing{
    .field = "gradientCheckpointing",
    .without = "must be false",
    .with = "gradientCheckpointing is true",
    .is_made = [](const TrainingSpec& spec) { return spec.gradient_checkpointing; },
    .not_made = "!self.gradientCheckpointing"};

constexpr std::array kAveraging = {Strategy::kLocalsgd, Strategy::kAsync};
constexpr std::array kAsync = {Strategy::kAsync};
constexpr std::array kLayersOnRanks = {Strategy::kPipeline, Strategy::kHybrid};
constexpr std::array kElementsOnRanks = {Strategy::kFsdp};
constexpr std::array kOneProcess = {Strategy::kDataparallel, Strategy::kModelparallel};
constexpr std::array kLayersOnDevices = {Strategy::kModelparallel};
constexpr std::array kNotRecorded = {Strategy::kFsdp,         Strategy::kPipeline,      Strategy::kHybrid,
                                     Strategy::kDataparallel, Strategy::kModelparallel, Strategy::kLocalsgd,
                                     Strategy::kAsync};

struct Exclusion {
  std::variant<std::span<const Strategy>, Choice> where;
  Choice excluded;
  string_view reason;
};

constexpr string_view kNoLayers = "a module does not say what its layers are";
constexpr string_view kNoLayersToDivide = "a module does not say what its layers are; use ddp or zero1";
constexpr string_view kSumsFollowRanks = "how gradients are added up follows from the number of ranks";

constexpr std::array kExclusions = {
    Exclusion{kWorld, kCompression, "what is rounded before it is sent follows from the number of ranks"},
    Exclusion{kAveraging, kCompression, "ranks send no gradients"},
    Exclusion{kAveraging, kWorld, "the result of a rank's own steps depends on the number of ranks"},
    Exclusion{kAveraging, kWeightAverage, "between two averages of the ranks each has its own weights"},
    Exclusion{kAsync, kBySpeed, "each rank takes as many samples as it can anyway"},
    Exclusion{kLayersOnRanks, kTorchscript, kNoLayersToDivide},
    Exclusion{kLayersOnRanks, kSkipsRecords,
              "only the ranks that read know which samples are left out; use ddp or zero1"},
    Exclusion{kLayersOnRanks, kWorld, kSumsFollowRanks},
    Exclusion{kLayersOnRanks, kBySpeed, "each sample passes through all ranks"},
    Exclusion{kLayersOnRanks, kCompression, "gradients are summed in float32"},
    Exclusion{kElementsOnRanks, kNotElementwise,
              "it needs whole parameters, which are divided by elements; use zero1 or ddp"},
    Exclusion{kElementsOnRanks, kTorchscript, kNoLayersToDivide},
    Exclusion{kElementsOnRanks, kWorld, kSumsFollowRanks},
    Exclusion{kElementsOnRanks, kCompression, "gradients are summed in float32"},
    Exclusion{kOneProcess, kWorld,
              "gradients and random numbers follow from the number of devices, and there is one rank"},
    Exclusion{kOneProcess, kBySpeed, "there is one rank"},
    Exclusion{kOneProcess, kCompression, "nothing is sent over a network"},
    Exclusion{kLayersOnDevices, kTorchscript, kNoLayersToDivide},
    Exclusion{kNotRecorded, kCudaGraph, "only the passes of ddp and zero1 can be recorded"},
    Exclusion{kCudaGraph, kWorld, "World is computed on the CPU"},
    Exclusion{kCudaGraph, kBySpeed, "a recorded graph does not show how long the rank waited for the others"},
    Exclusion{kCudaGraph, kSkipsRecords, "with samples left out, batches are not of one shape"},
    Exclusion{kTorchscript, kGradientCheckpointing, kNoLayers},
    Exclusion{kCudaGraph, kGradientCheckpointing,
              "the host sets the random numbers of a layer that is computed again"},
};

std::string MessageOf(const Exclusion& exclusion, const std::string& where) {
  return std::string(exclusion.excluded.without) + " where " + where + ": " + std::string(exclusion.reason);
}

// What `training` has of the first half; empty: nothing.
std::string FoundIn(const TrainingSpec& training, const Exclusion& exclusion) {
  if (const auto* choice = std::get_if<Choice>(&exclusion.where))
    return choice->is_made(training) ? std::string(choice->with) : "";
  const auto strategies = std::get<std::span<const Strategy>>(exclusion.where);
  const bool is_one = std::find(strategies.begin(), strategies.end(), training.strategy) != strategies.end();
  return is_one ? "strategy is " + std::string(NameOf(training.strategy)) : "";
}

}  // namespace

Violations FindExclusions(const TrainingSpec& training, const std::string& path) {
  Violations violations;
  for (const Exclusion& exclusion : kExclusions) {
    if (!exclusion.excluded.is_made(training)) continue;
    const std::string where = FoundIn(training, exclusion);
    if (!where.empty())
      Add(violations, path + "." + std::string(exclusion.excluded.field), MessageOf(exclusion, where));
  }
  return violations;
}

std::vector<ExclusionRule> ExclusionRules() {
  std::vector<ExclusionRule> rules;
  for (const Exclusion& exclusion : kExclusions) {
    std::string where;
    std::string elsewhere;
    if (const auto* choice = std::get_if<Choice>(&exclusion.where)) {
      where = choice->with;
      elsewhere = choice->not_made;
    } else {
      std::vector<std::string> names;
      for (const Strategy strategy : std::get<std::span<const Strategy>>(exclusion.where))
        names.emplace_back(NameOf(strategy));
      const std::string last = names.back();
      elsewhere = names.size() == 1 ? "self.strategy != '" + last + "'"
                                    : "!(self.strategy in ['" + Join(names, "', '") + "'])";
      names.pop_back();
      where = "strategy is " + Join(names, ", ") + (names.empty() ? "" : " or ") + last;
    }
    const std::string field(exclusion.excluded.field);
    rules.push_back({.rule = elsewhere + " || " + std::string(exclusion.excluded.not_made),
                     .message = field + " " + MessageOf(exclusion, where),
                     .field_path = "." + field});
  }
  return rules;
}

}  // namespace lockstep::api
