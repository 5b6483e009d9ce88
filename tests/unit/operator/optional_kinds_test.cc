#include "operator/optional_kinds.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "operator/reconcile/gang.h"
#include "operator/reconcile/kueue_workload.h"
#include "operator/reconcile/owned_objects.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_kube.h"

namespace lockstep {
namespace {

using reconcile::KeyOfKind;

constexpr Milliseconds kLong{60'000};

// An API server that serves some kinds and fails for others; called from other threads.
class PartialApi final : public kube::KubeReader {
 public:
  void Fail(const kube::Resource& resource, std::optional<ErrorCode> code) {
    const std::lock_guard lock(mutex_);
    failures_.erase(KeyOfKind(resource));
    if (code) failures_.emplace(KeyOfKind(resource), *code);
  }
  Result<Json> Get(const kube::Resource& resource, const kube::ObjectKey& key) override {
    return inner_.Get(resource, key);
  }
  Result<kube::ListPage> List(const kube::Resource& resource, const kube::ListOptions& options,
                              std::stop_token stop) override {
    {
      const std::lock_guard lock(mutex_);
      const auto failure = failures_.find(KeyOfKind(resource));
      if (failure != failures_.end()) return Error{failure->second, "as the test says"};
    }
    return inner_.List(resource, options, std::move(stop));
  }
  Result<void> Watch(const kube::Resource& resource, const kube::WatchOptions& options,
                     const std::function<bool(kube::WatchEvent)>& on_event, std::stop_token stop) override {
    return inner_.Watch(resource, options, on_event, std::move(stop));
  }

 private:
  testing::FakeKube inner_;
  std::mutex mutex_;
  std::map<std::string, ErrorCode> failures_;
};

class OptionalKindsTest : public ::testing::Test {
 protected:
  OptionalKindsTest() {
    for (const kube::Resource& resource : reconcile::kGangKinds) api_.Fail(resource, ErrorCode::kNotFound);
    api_.Fail(reconcile::kWorkloads, ErrorCode::kNotFound);
  }
  void Start() {
    kinds_.Start();
    ASSERT_TRUE(testing::Eventually([&] { return kinds_.has_looked(); }, kLong));
  }
  bool EventuallyServes(const kube::Resource& resource) {
    return testing::Eventually([&] { return caches_.served().contains(KeyOfKind(resource)); }, kLong);
  }

  PartialApi api_;
  reconcile::Caches caches_;
  std::atomic<int> served_ = 0;
  OptionalKinds kinds_{
      api_,
      caches_,
      {.on_served = [this] { ++served_; }, .retry = Milliseconds(1), .period = Milliseconds(1)}};
};

TEST_F(OptionalKindsTest, OneThatFailsDelaysNoOther) {
  api_.Fail(reconcile::kCoschedulingGroups, ErrorCode::kUnavailable);
  api_.Fail(reconcile::kVolcanoGroups, std::nullopt);
  Start();
  EXPECT_EQ(caches_.served(), std::set<std::string>{KeyOfKind(reconcile::kVolcanoGroups)});
  EXPECT_EQ(served_, 1);
  api_.Fail(reconcile::kCoschedulingGroups, std::nullopt);
  EXPECT_TRUE(EventuallyServes(reconcile::kCoschedulingGroups)) << "it is looked for again";
}

TEST_F(OptionalKindsTest, KueueIsFoundWhenItIsInstalledLater) {
  Start();
  EXPECT_TRUE(caches_.served().empty());
  api_.Fail(reconcile::kFlavors, ErrorCode::kUnavailable);
  api_.Fail(reconcile::kWorkloads, std::nullopt);
  EXPECT_TRUE(caches_.served().empty()) << "not before its flavors";
  api_.Fail(reconcile::kFlavors, std::nullopt);
  EXPECT_TRUE(EventuallyServes(reconcile::kWorkloads));
}

TEST_F(OptionalKindsTest, AnOlderVersionWaitsForTheAnswerAboutTheNewer) {
  api_.Fail(reconcile::kCoreGroups[0], ErrorCode::kUnavailable);
  api_.Fail(reconcile::kCoreGroups[1], std::nullopt);
  Start();
  EXPECT_TRUE(caches_.served().empty());
  api_.Fail(reconcile::kCoreGroups[0], ErrorCode::kNotFound);
  EXPECT_TRUE(EventuallyServes(reconcile::kCoreGroups[1]));
}

}  // namespace
}  // namespace lockstep
