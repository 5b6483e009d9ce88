#include "runtime/common/api/model_catalog.h"

#include <type_traits>

#include "runtime/common/api/training_spec_fields.h"

namespace lockstep::api {
namespace {

// Visits the fields of a section like a reader or a writer of it (fields.h).
class FieldLister {
 public:
  static constexpr bool kReading = false;

  explicit FieldLister(std::string section) : section_(std::move(section)) {}

  template <typename T>
  void Field(std::string_view key, const T& value, const Limits& = {}) {
    if constexpr (std::is_enum_v<T>) {
      Add(key, DumpJson(Json(NameOf(value))));
    } else {
      Add(key, DumpJson(Json(value)));
    }
  }
  template <typename T>
  void Required(std::string_view key, const T&, const Limits& = {}) {
    Add(key, "");
  }

  [[nodiscard]] std::vector<ModelField> Take() { return std::move(fields_); }

 private:
  void Add(std::string_view key, std::string value) {
    fields_.push_back({section_ + "." + std::string(key), std::move(value)});
  }

  const std::string section_;
  std::vector<ModelField> fields_;
};

template <typename Section>
std::vector<ModelField> FieldsOf(std::string name) {
  FieldLister fields(std::move(name));
  const Section defaults;
  Describe(fields, defaults);
  return fields.Take();
}

constexpr const char* kImages = "images [channels, height, width]: idx, npy, imageFolder, synthetic, plugin";

}  // namespace

std::vector<ModelEntry> ModelCatalog() {
  return {
      {ModelName::kMlp, "fully connected layers with ReLU between them",
       "numbers of any shape, flattened: idx, csv, npy, imageFolder, synthetic, plugin",
       FieldsOf<MlpSpec>("mlp")},
      {ModelName::kCnn, "convolutions with pooling, then two fully connected layers", kImages,
       FieldsOf<CnnSpec>("cnn")},
      {ModelName::kResnet18, "a residual network of 18 layers, as torchvision's", kImages,
       FieldsOf<ResnetSpec>("resnet")},
      {ModelName::kResnet50, "a residual network of 50 layers, as torchvision's", kImages,
       FieldsOf<ResnetSpec>("resnet")},
      {ModelName::kGpt, "a decoder of tokens, as GPT-2", "sequences of tokens: tokens",
       FieldsOf<GptSpec>("gpt")},
      {ModelName::kTorchscript,
       "a module of Python, with its weights, saved by torch.jit.script(model).save(path)",
       "what its forward takes: idx, csv, npy, imageFolder, synthetic, plugin",
       FieldsOf<TorchscriptSpec>("torchscript")},
      {ModelName::kPlugin, "a model of your own, in a library built against the SDK (runtime/sdk)",
       "what the model of the library does: idx, csv, npy, imageFolder, synthetic, plugin",
       FieldsOf<PluginSpec>("plugin")},
  };
}

}  // namespace lockstep::api
