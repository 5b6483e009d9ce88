#include "runtime/tools/convert/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::convert {
namespace {

using ::testing::HasSubstr;

TEST(ReadDocuments, KeepsTheTextOfEach) {
  const auto documents = ReadDocuments("# first\na: 1\n--- # second\nb: |\n  x\n  ---y\n---\n\n---\nc: 3");
  ASSERT_TRUE(documents.ok()) << documents.error().message;
  ASSERT_EQ(documents->size(), 4U);
  EXPECT_EQ((*documents)[0].text, "# first\na: 1\n");
  EXPECT_EQ((*documents)[1].text, " # second\nb: |\n  x\n  ---y\n");
  EXPECT_EQ((*documents)[1].value, Json({{"b", "x\n---y\n"}}));
  EXPECT_TRUE((*documents)[2].value.is_null());
  EXPECT_EQ((*documents)[3].value, Json({{"c", 3}}));
}

TEST(ReadDocuments, TakesAMarkerBeforeTheFirst) {
  const auto documents = ReadDocuments("---\na: 1\n");
  ASSERT_TRUE(documents.ok());
  ASSERT_EQ(documents->size(), 1U);
  EXPECT_EQ((*documents)[0].text, "a: 1\n");
}

TEST(ReadDocuments, NamesTheLineInTheWholeText) {
  const auto documents = ReadDocuments("a: 1\n---\nb: 2\nb: 3\n");
  ASSERT_FALSE(documents.ok());
  EXPECT_THAT(documents.error().message, HasSubstr("line 4"));
}

}  // namespace
}  // namespace lockstep::convert
