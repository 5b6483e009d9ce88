#include "runtime/common/api/rendezvous_settings_of.h"

#include <gtest/gtest.h>

namespace lockstep::api {
namespace {

TEST(RendezvousSettingsOf, TakesTheSuccessRuleFromTheSpec) {
  const struct {
    SuccessType type;
    rendezvous::SuccessRule rule;
  } cases[] = {{SuccessType::kAll, rendezvous::SuccessRule::kAll},
               {SuccessType::kAny, rendezvous::SuccessRule::kAny},
               {SuccessType::kRank0, rendezvous::SuccessRule::kRank0}};
  for (const auto& test : cases) {
    TrainingJobSpec spec;
    spec.success_policy.type = test.type;
    EXPECT_EQ(RendezvousSettingsOf(spec).success, test.rule) << NameOf(test.type);
  }
}

TEST(RendezvousSettingsOf, TakesTheRanksOfAMemberFromTheSpec) {
  TrainingJobSpec spec;
  EXPECT_EQ(RendezvousSettingsOf(spec).nproc, std::nullopt);
  spec.nproc_per_node = {.mode = NprocMode::kCount, .count = 8};
  EXPECT_EQ(RendezvousSettingsOf(spec).nproc, 8);
}

}  // namespace
}  // namespace lockstep::api
