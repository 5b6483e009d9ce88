#include "operator/kube/informer.h"

#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>
#include <utility>

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
  std::atomic<bool> throws_ = false;
  Informer informer_{kube_,
                     {.resource = kPods, .backoff = {.base = std::chrono::milliseconds(1)}},
                     store_,
                     [this](const ObjectChange&) {
                       ++heard_;
                       if (throws_) throw std::runtime_error("thrown");
                     }};
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

TEST_F(InformerTest, AnExceptionOfTheHandlerEndsNoFollowing) {
  Start();
  throws_ = true;
  ASSERT_TRUE(kube_.Create(kPods, Pod("a")).ok());
  ASSERT_TRUE(Eventually([&] { return heard_ > 0; }));
  throws_ = false;
  ASSERT_TRUE(kube_.Create(kPods, Pod("b")).ok());
  EXPECT_TRUE(Eventually([&] { return Has("a") && Has("b"); }));
}

TEST_F(InformerTest, ReadsAllPages) {
  for (int i = 0; i < 1100; ++i) ASSERT_TRUE(kube_.Create(kPods, Pod("pod-" + std::to_string(i))).ok());
  Start();
  EXPECT_EQ(store_.size(), 1100U);
  EXPECT_EQ(heard_, 1100);
}

// A reader that checks at the second page that the first was slimmed.
class TwoPages final : public KubeReader {
 public:
  explicit TwoPages(const int& slimmed) : slimmed_(slimmed) {}
  Result<Json> Get(const Resource&, const ObjectKey&) override { return Error{}; }
  Result<ListPage> List(const Resource&, const ListOptions& options, std::stop_token) override {
    if (options.continue_token.empty()) return ListPage{{Pod("a"), Pod("b")}, "more", "5"};
    slim_before_second_page = slimmed_;
    return ListPage{{Pod("c")}, "", "5"};
  }
  Result<void> Watch(const Resource&, const WatchOptions&, const std::function<bool(WatchEvent)>&,
                     std::stop_token) override {
    return Error{ErrorCode::kUnavailable, "no watch here"};
  }
  std::atomic<int> slim_before_second_page = -1;

 private:
  const int& slimmed_;
};

TEST(Informer, KeepsNoPageAsItCame) {
  int slimmed = 0;
  Store store([&](Json pod) {
    ++slimmed;
    return pod;
  });
  TwoPages reader(slimmed);
  Informer informer(reader, {.resource = kPods}, store, {});
  informer.Start();
  ASSERT_TRUE(Eventually([&] { return informer.synced(); }));
  EXPECT_EQ(reader.slim_before_second_page, 2);
}

// The first list is by an older definition without a field, the second by a newer one. Its watches end at
// once.
class TwoDefinitions final : public KubeReader {
 public:
  Result<Json> Get(const Resource&, const ObjectKey&) override { return Error{}; }
  Result<ListPage> List(const Resource&, const ListOptions&, std::stop_token) override {
    Json object = Pod("a");
    object["metadata"]["resourceVersion"] = "5";
    if (std::exchange(is_newer_, true)) object["spec"]["field"] = 1;
    return ListPage{{object}, "", "5"};
  }
  Result<void> Watch(const Resource&, const WatchOptions&, const std::function<bool(WatchEvent)>&,
                     std::stop_token) override {
    return {};
  }

 private:
  bool is_newer_ = false;
};

TEST(Informer, ReadsObjectsAgainWhoseDefinitionHasChanged) {
  TwoDefinitions reader;
  Store store;
  Informer informer(
      reader,
      {.resource = kPods, .backoff = {.base = std::chrono::milliseconds(1)}, .definition_may_change = true},
      store, {});
  informer.Start();
  EXPECT_TRUE(Eventually([&] {
    const Object object = store.Get({"ns", "a"});
    return object != nullptr && object->contains("spec");
  }));
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
