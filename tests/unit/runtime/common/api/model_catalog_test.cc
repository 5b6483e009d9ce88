#include "runtime/common/api/model_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/api/training_job_json.h"

namespace lockstep::api {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

ModelEntry EntryOf(ModelName name) {
  for (const ModelEntry& entry : ModelCatalog()) {
    if (entry.name == name) return entry;
  }
  ADD_FAILURE() << NameOf(name) << " is not in the catalog";
  return {};
}

auto IsField(const std::string& path, const std::string& value) {
  return AllOf(Field(&ModelField::path, path), Field(&ModelField::default_value, value));
}

TEST(ModelCatalog, HasTheFieldsOfEachModelWithTheirDefaults) {
  EXPECT_THAT(EntryOf(ModelName::kCnn).fields,
              ElementsAre(IsField("cnn.channels", "[32,64]"), IsField("cnn.hiddenSize", "128"),
                          IsField("cnn.dropout", "0.25")));
  EXPECT_THAT(EntryOf(ModelName::kResnet50).fields, ElementsAre(IsField("resnet.smallImages", "false")));
  EXPECT_THAT(EntryOf(ModelName::kTorchscript).fields,
              ElementsAre(IsField("torchscript.path", ""), IsField("torchscript.loss", "\"crossEntropy\"")));
  EXPECT_THAT(
      EntryOf(ModelName::kPlugin).fields,
      ElementsAre(IsField("plugin.path", ""), IsField("plugin.name", ""), IsField("plugin.options", "{}")));
}

TEST(ModelCatalog, SaysOfEachFormatWhatLearnsFromIt) {
  for (const std::string_view format : WordsOf(DataFormat{})) {
    const std::vector<ModelEntry> models = ModelCatalog();
    EXPECT_TRUE(std::any_of(models.begin(), models.end(), [&](const ModelEntry& entry) {
      return std::string(entry.samples).find(format) != std::string::npos;
    })) << format;
  }
  EXPECT_THAT(std::string(EntryOf(ModelName::kResnet50).samples), HasSubstr("imageFolder"));
}

TEST(ModelCatalog, HoldsEachModelOnce) {
  for (std::size_t i = 0; i < WordsOf(ModelName{}).size(); ++i) {
    const std::vector<ModelEntry> models = ModelCatalog();
    EXPECT_EQ(std::count_if(models.begin(), models.end(),
                            [&](const ModelEntry& entry) { return entry.name == static_cast<ModelName>(i); }),
              1)
        << WordsOf(ModelName{})[i];
  }
}

}  // namespace
}  // namespace lockstep::api
