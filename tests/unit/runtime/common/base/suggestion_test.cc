#include "runtime/common/base/suggestion.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::vector<std::string> kFields = {"data", "epochs", "globalBatchSize", "steps", "seed"};

TEST(DidYouMean, FindsSlipsOfTheKeyboard) {
  const struct {
    const char* name;
    const char* meant;
  } cases[] = {
      {"globalBatchsize", "globalBatchSize"},  // case
      {"gobalBatchSize", "globalBatchSize"},   // an omitted letter
      {"epochss", "epochs"},                   // an additional letter
      {"dada", "data"},                        // a replaced letter
      {"stpes", "steps"},                      // swapped letters
      {"sed", "seed"},                         // a short name
      {"SEED", "seed"},
  };
  for (const auto& test : cases) EXPECT_EQ(ClosestName(test.name, kFields), test.meant) << test.name;
}

TEST(DidYouMean, SaysNothingOfOtherWords) {
  for (const char* name : {"batch", "model", "", "x", "size"})
    EXPECT_EQ(ClosestName(name, kFields), std::nullopt) << name;
  EXPECT_EQ(ClosestName("seed", {"seed"}), std::nullopt) << "it is that name already";
  EXPECT_EQ(ClosestName(std::string(1'000'000, 'a'), {std::string(1'000'001, 'a')}), std::nullopt);
}

TEST(DidYouMean, PrefersTheClosestThenTheFirst) {
  EXPECT_EQ(ClosestName("maxRestart", {"minRestarts", "maxRestarts"}), "maxRestarts");
  EXPECT_EQ(ClosestName("batts", {"batch", "bakts", "bats"}), "bakts");
}

TEST(DidYouMean, EndsAnError) {
  EXPECT_EQ("unknown field" + DidYouMean("epoch", kFields), "unknown field: did you mean \"epochs\"?");
  EXPECT_EQ(DidYouMean("model", kFields), "");
}

}  // namespace
}  // namespace lockstep
