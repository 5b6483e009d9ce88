#include "runtime/launch/program/program_notice.h"

#include <gtest/gtest.h>

#include "runtime/common/base/json.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

TEST(Notice, SaysWhyAndUntilWhen) {
  const auto json = [](const Notice& notice) { return *ParseJson(NoticeText(notice, WallTime(1000s))); };
  EXPECT_EQ(json({NoticeReason::kTermination, Seconds(26)}),
            (Json{{"reason", "Termination"}, {"deadline", 1026.0}, {"secondsLeft", 26.0}}));
  EXPECT_EQ(json({NoticeReason::kRoundOver, Seconds(10)})["reason"], "RoundOver");
  EXPECT_EQ(json({.reason = NoticeReason::kNodeDeparts, .detail = "taint t"}),
            (Json{{"reason", "NodeDeparts"}, {"detail", "taint t"}}));
  EXPECT_EQ(json({.reason = NoticeReason::kNodeDeparts, .until = WallTime(1120s)})["secondsLeft"], 120);
  EXPECT_EQ(*ParseJson(kNoNotice), Json::object());
}

}  // namespace
}  // namespace lockstep::launch
