#include "operator/kube/watch_state.h"

#include <gtest/gtest.h>

namespace lockstep::kube {
namespace {

Json At(const std::string& version) { return {{"metadata", {{"resourceVersion", version}}}}; }

std::string WatchVersion(const WatchState& state) {
  const auto next = state.next();
  const auto* watch = std::get_if<WatchNext>(&next);
  return watch == nullptr ? "listing" : watch->resource_version;
}

WatchState Watching(const std::string& version) {
  WatchState state;
  (void)state.OnPage({.resource_version = version});
  return state;
}

TEST(WatchState, ReplacesTheStoreOnlyWithTheLastPage) {
  WatchState state;
  EXPECT_EQ(std::get<ListNext>(state.next()).continue_token, "");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(
      state.OnPage({.items = {At("1")}, .continue_token = "more", .resource_version = "5"})));
  EXPECT_FALSE(state.synced());
  EXPECT_EQ(std::get<ListNext>(state.next()).continue_token, "more");
  const auto change = state.OnPage({.items = {At("2")}, .resource_version = "5"});
  EXPECT_EQ(std::get<ReplaceAll>(change).items.size(), 2U);
  EXPECT_TRUE(state.synced());
  EXPECT_EQ(WatchVersion(state), "5");
}

TEST(WatchState, ResumesFromTheNewestVersionItSaw) {
  WatchState state = Watching("5");
  EXPECT_TRUE(std::holds_alternative<Put>(*state.OnEvent({WatchEventType::kModified, At("6")})));
  EXPECT_EQ(WatchVersion(state), "6");
  EXPECT_TRUE(std::holds_alternative<Remove>(*state.OnEvent({WatchEventType::kDeleted, At("7")})));
  EXPECT_TRUE(std::holds_alternative<Seen>(*state.OnEvent({WatchEventType::kBookmark, At("90")})));
  state.OnFailure({ErrorCode::kUnavailable, "cut"});
  EXPECT_EQ(WatchVersion(state), "90");
  EXPECT_EQ(state.failures(), 1);
  (void)state.OnEvent({WatchEventType::kBookmark, At("91")});
  EXPECT_EQ(state.failures(), 0);
}

TEST(WatchState, ListsAgainWhenItsVersionIsGone) {
  WatchState state = Watching("5");
  const auto refused =
      state.OnEvent({WatchEventType::kError, {{"code", 410}, {"reason", "Expired"}, {"message", "too old"}}});
  ASSERT_FALSE(refused.ok());
  state.OnFailure(refused.error());
  EXPECT_EQ(WatchVersion(state), "listing");
  EXPECT_TRUE(state.synced()) << "the store still holds the old list";
}

TEST(WatchState, ListsAgainAfterAnEarlyEnd) {
  WatchState state = Watching("5");
  state.OnEarlyEnd();
  EXPECT_EQ(WatchVersion(state), "listing");
  EXPECT_EQ(state.failures(), 0);
}

TEST(WatchState, StartsAListThatFailedHalfwayFromItsFirstPage) {
  WatchState state;
  (void)state.OnPage({.items = {At("1")}, .continue_token = "more", .resource_version = "5"});
  state.OnFailure({ErrorCode::kUnavailable, "cut"});
  EXPECT_EQ(std::get<ListNext>(state.next()).continue_token, "");
  const auto change = state.OnPage({.items = {At("1")}, .resource_version = "6"});
  EXPECT_EQ(std::get<ReplaceAll>(change).items.size(), 1U) << "no page twice";
}

TEST(WatchState, KeepsItsPlaceOnOtherErrorEvents) {
  WatchState state = Watching("5");
  const auto refused = state.OnEvent({WatchEventType::kError, {{"code", 500}, {"message", "overloaded"}}});
  ASSERT_FALSE(refused.ok());
  state.OnFailure(refused.error());
  EXPECT_EQ(WatchVersion(state), "5");
}

}  // namespace
}  // namespace lockstep::kube
