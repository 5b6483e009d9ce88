#include "runtime/data/training_samples.h"

#include <ATen/ATen.h>

namespace lockstep::data {
namespace {

// The bytes of a whole step, independent of the rank's share.
constexpr int64_t kQuickBytes = int64_t{64} << 10;

bool AreQuick(const api::TrainingSpec& spec, const Dataset& dataset) {
  const auto& augmentation = spec.data.augmentation;
  if (!dataset.is_in_memory() || augmentation.horizontal_flip || augmentation.crop_padding > 0) return false;
  const int64_t numbers = c10::multiply_integers(dataset.sample_shape());
  return numbers * static_cast<int64_t>(sizeof(float)) <= kQuickBytes / spec.global_batch_size;
}

Error DoesNotFit(const std::string& field, const std::string& problem) {
  return {ErrorCode::kInvalidArgument, "spec.training.data." + field + ": " + problem};
}

// Null if each sample is used once per epoch.
Result<std::shared_ptr<const ClassDraw>> ClassDrawOf(const api::DataSpec& spec, const Dataset& dataset) {
  if (spec.sampler == api::SamplerName::kUniform) return std::shared_ptr<const ClassDraw>();
  const at::Tensor labels = dataset.labels();
  if (!labels.defined())
    return DoesNotFit("sampler",
                      "Weighted needs samples of one class each, which this data has not; use Uniform");
  const auto classes = static_cast<std::size_t>(dataset.classes());
  if (!spec.class_weights.empty() && spec.class_weights.size() != classes) {
    return DoesNotFit("classWeights", "has " + std::to_string(spec.class_weights.size()) +
                                          " numbers, but the data " + std::to_string(classes) +
                                          " classes; give one for each class");
  }
  const std::span<const int64_t> of_samples(labels.const_data_ptr<int64_t>(),
                                            static_cast<std::size_t>(labels.numel()));
  std::vector<int64_t> counts(classes);
  for (const int64_t label : of_samples) {
    if (label >= 0) ++counts.at(static_cast<std::size_t>(label));
  }
  std::vector<double> weights = spec.class_weights;
  if (weights.empty()) weights.assign(classes, 1);
  double sum = 0;
  for (std::size_t i = 0; i < classes; ++i) {
    if (counts[i] == 0 && !spec.class_weights.empty() && weights[i] > 0) {
      return DoesNotFit("classWeights",
                        "class " + std::to_string(i) + " has a weight but no sample; give it the weight 0");
    }
    if (counts[i] == 0) weights[i] = 0;
    sum += weights[i];
  }
  if (sum == 0) return DoesNotFit("classWeights", "no class has a weight; give one a weight above 0");
  return std::make_shared<const ClassDraw>(of_samples, weights);
}

}  // namespace

Result<TrainingSamples> TrainingSamples::Make(const api::TrainingSpec& spec, const Dataset& dataset) {
  LOCKSTEP_TRY(const Augmentation augmentation,
               Augmentation::Make(spec.data.augmentation, spec.seed, dataset.sample_shape()));
  LOCKSTEP_TRY(std::shared_ptr<const ClassDraw> weighted, ClassDrawOf(spec.data, dataset));
  const SamplePlan plan({.size = dataset.size(),
                         .global_batch = spec.global_batch_size,
                         .seed = static_cast<uint64_t>(spec.seed),
                         .shuffle = spec.data.shuffle,
                         .drop_last = spec.data.drop_last,
                         .weighted = std::move(weighted)});
  return TrainingSamples(dataset, plan, augmentation, AreQuick(spec, dataset));
}

Batch TrainingSamples::Get(const Draw& draw) const {
  const std::vector<int64_t> ids = plan_.Ids(draw.step, draw.begin, draw.end);
  Batch batch = dataset_->Get(ids);
  // Before rows are removed, because an augmentation depends on the position in the step.
  batch.inputs = augmentation_.Apply(batch.inputs, draw.step, draw.begin);
  return batch.WithoutCorrupt();
}

}  // namespace lockstep::data
