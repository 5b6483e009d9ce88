#include "runtime/launch/program/replaceable_text.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(ReplaceableText, IsReplacedUnderItsPath) {
  ReplaceableText text;
  EXPECT_EQ(text.path(), "");
  ASSERT_TRUE(text.Set("a long first text").ok());
  const std::string path = text.path();
  EXPECT_EQ(*ReadFile(path), "a long first text");
  ASSERT_TRUE(text.Set("short").ok());
  EXPECT_EQ(text.path(), path);
  EXPECT_EQ(*ReadFile(path), "short");
}

}  // namespace
}  // namespace lockstep::launch
