#include "operator/kube/informer.h"

#include <gtest/gtest.h>

#include <mutex>

#include "tests/support/eventually.h"
#include "tests/support/fake_kube.h"

namespace lockstep::kube {
namespace {

using testing::Eventually;

Json Pod(const std::string& name) { return {{"metadata", {{"namespace", "ns"}, {"name", name}}}}; }

class InformerTest : public ::testing::Test {
 protected:
  void Start() {
    informer_.Start();
    ASSERT_TRUE(Eventually([&] { return informer_.synced(); }));
  }
  bool Has(const std::string& name) const { return store_.Get({"ns", name}) != nullptr; }

  testing::FakeKube kube_;
  Store store_;
  std::atomic<int> heard_ = 0;
  Informer informer_{kube_,
                     {.resource = kPods, .backoff = {.base = std::chrono::milliseconds(1)}},
                     store_,
                     [this](const ObjectChange&) { ++heard_; }};
};

TEST_F(InformerTest, ListsThenFollows) {
  ASSERT_TRUE(kube_.Create(kPods, Pod("a")).ok());
  Start();
  EXPECT_TRUE(Has("a"));
  ASSERT_TRUE(kube_.Create(kPods, Pod("b")).ok());
  ASSERT_TRUE(Eventually([&] { return Has("b"); }));
  ASSERT_TRUE(kube_.Delete(kPods, {"ns", "a"}, {}).ok());
  ASSERT_TRUE(Eventually([&] { return !Has("a"); }));
  EXPECT_TRUE(Eventually([&] { return heard_ == 3; }));
}

TEST_F(InformerTest, ListsAgainAfterACompactionAndMissesNothing) {
  ASSERT_TRUE(kube_.Create(kPods, Pod("a")).ok());
  Start();
  kube_.Compact();
  ASSERT_TRUE(kube_.Delete(kPods, {"ns", "a"}, {}).ok());
  ASSERT_TRUE(kube_.Create(kPods, Pod("b")).ok());
  EXPECT_TRUE(Eventually([&] { return !Has("a") && Has("b"); }));
}

}  // namespace
}  // namespace lockstep::kube
