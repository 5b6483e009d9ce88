#include "runtime/common/api/rendezvous_settings_of.h"

#include <gtest/gtest.h>

namespace lockstep::api {
namespace {

TEST(RendezvousSettingsOf, KnowsWhoseEndCompletesTheJob) {
  const struct {
    SuccessPolicy policy;
    rendezvous::SuccessRule rule;
  } cases[] = {{SuccessPolicy::kAll, rendezvous::SuccessRule::kAll},
               {SuccessPolicy::kAny, rendezvous::SuccessRule::kAny},
               {SuccessPolicy::kRank0, rendezvous::SuccessRule::kRank0}};
  for (const auto& test : cases) {
    TrainingJobSpec spec;
    spec.success_policy = test.policy;
    EXPECT_EQ(RendezvousSettingsOf(spec).success, test.rule) << NameOf(test.policy);
  }
}

}  // namespace
}  // namespace lockstep::api
