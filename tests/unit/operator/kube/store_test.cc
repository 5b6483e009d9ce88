#include "operator/kube/store.h"

#include <gtest/gtest.h>

namespace lockstep::kube {
namespace {

Json Pod(const std::string& name, int version, const std::string& group = "g") {
  return {{"metadata",
           {{"namespace", "ns"},
            {"name", name},
            {"resourceVersion", std::to_string(version)},
            {"group", group}}}};
}

Store::Index ByGroup() {
  return [](const Json& object) { return StringAt(object, {"metadata", "group"}); };
}

int VersionAt(const Store& store, const std::string& name) {
  const Object object = store.Get({"ns", name});
  return object == nullptr ? 0 : std::stoi(StringAt(*object, {"metadata", "resourceVersion"}));
}

TEST(Store, FollowsTheWatchAndItsIndex) {
  Store store({}, {ByGroup()});
  store.Put(Pod("a", 1));
  store.Put(Pod("b", 2));
  EXPECT_EQ(store.ByIndex("g").size(), 2U);
  store.Put(Pod("b", 3, "other"));
  EXPECT_EQ(store.ByIndex("g").size(), 1U);
  EXPECT_EQ(store.ByIndex("other").size(), 1U);
  store.Remove(Pod("b", 4, "other"));
  EXPECT_TRUE(store.ByIndex("other").empty());
  EXPECT_EQ(store.size(), 1U);
}

TEST(Store, FindsAnObjectByEachOfItsIndexes) {
  const Store::Index by_name = [](const Json& object) { return "name " + KeyOf(object).name; };
  Store store({}, {ByGroup(), by_name});
  store.Put(Pod("a", 1));
  store.Put(Pod("b", 2));
  EXPECT_EQ(store.ByIndex("g").size(), 2U);
  ASSERT_EQ(store.ByIndex("name b").size(), 1U);
  EXPECT_EQ(KeyOf(*store.ByIndex("name b")[0]).name, "b");
  store.Remove(Pod("b", 3));
  EXPECT_EQ(store.ByIndex("g").size(), 1U);
  EXPECT_TRUE(store.ByIndex("name b").empty());
}

TEST(Store, AListReplacesEverythingAtOnce) {
  Store store;
  store.Put(Pod("old", 1));
  store.Put(Pod("kept", 2));
  const auto changes = store.ReplaceAll({Pod("kept", 2), Pod("new", 3)}, "5");
  EXPECT_EQ(changes.size(), 3U) << "with the one that stays";
  EXPECT_EQ(VersionAt(store, "old"), 0);
  EXPECT_EQ(VersionAt(store, "new"), 3);
}

TEST(Store, AListMayReadAVersionOtherwiseThanBefore) {
  Store store({}, {ByGroup()});
  store.Put(Pod("a", 5));
  store.ReplaceAll({Pod("a", 5, "other")}, "7");
  EXPECT_EQ(store.ByIndex("other").size(), 1U);
}

TEST(Store, AListOfANamespaceReplacesWhatIsInIt) {
  Store store;
  const Json elsewhere = {{"metadata", {{"namespace", "other"}, {"name", "a"}, {"resourceVersion", "4"}}}};
  store.ReplaceAll({Pod("old", 1)}, "1", "ns");
  store.ReplaceAll({elsewhere}, "9", "other");
  EXPECT_EQ(store.ReplaceAll({Pod("new", 3)}, "5", "ns").size(), 2U) << "the old one and the new one";
  EXPECT_EQ(VersionAt(store, "old"), 0);
  EXPECT_EQ(VersionAt(store, "new"), 3);
  EXPECT_NE(store.Get({"other", "a"}), nullptr);
}

TEST(Store, AWatchOfAnotherNamespaceDoesNotHideOurOwnWrite) {
  Store store;
  store.ReplaceAll({}, "5", "ns");
  store.ReplaceAll({}, "9", "other");
  store.AdvanceTo("20", "other");
  store.Learn(Pod("a", 7));
  EXPECT_EQ(VersionAt(store, "a"), 7);
  store.AdvanceTo("30", "ns");
  store.Learn(Pod("b", 29));
  EXPECT_EQ(VersionAt(store, "b"), 0) << "the watch has reported its end";
}

TEST(Store, ShowsOurOwnWritesBeforeTheWatchDoes) {
  Store store;
  store.ReplaceAll({}, "5");
  store.Learn(Pod("a", 6));
  EXPECT_EQ(VersionAt(store, "a"), 6);
  EXPECT_EQ(store.Put(Pod("a", 6)).size(), 1U) << "the handlers still hear of it";
  EXPECT_EQ(store.ReplaceAll({Pod("a", 6)}, "7").size(), 1U)
      << "also where a list comes in the event's place";
}

TEST(Store, AnOldEventDoesNotUndoOurOwnWrite) {
  Store store;
  store.Put(Pod("a", 5));
  store.Learn(Pod("a", 8));
  store.Put(Pod("a", 7));
  EXPECT_EQ(VersionAt(store, "a"), 8);
  store.ReplaceAll({}, "7");
  EXPECT_EQ(VersionAt(store, "a"), 8) << "the list was taken before the write";
  store.Remove(Pod("a", 9));
  EXPECT_EQ(VersionAt(store, "a"), 0);
}

TEST(Store, AWriteWhoseAnswerComesAfterTheDeletionLeavesNoGhost) {
  Store store;
  store.Put(Pod("a", 6));
  store.Remove(Pod("a", 7));
  store.Learn(Pod("a", 6));
  EXPECT_EQ(VersionAt(store, "a"), 0);
  store.AdvanceTo("20");
  store.Learn(Pod("b", 19));
  EXPECT_EQ(VersionAt(store, "b"), 0);
}

TEST(Store, KeepsTheSlimFormOnly) {
  Store store([](Json object) { return Json{{"metadata", object["metadata"]}}; });
  Json pod = Pod("a", 1);
  pod["spec"] = "large";
  store.Put(pod);
  EXPECT_FALSE(store.Get({"ns", "a"})->contains("spec"));
}

}  // namespace
}  // namespace lockstep::kube
