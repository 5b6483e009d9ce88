#include "operator/kube/base64.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace lockstep::kube {
namespace {

TEST(Base64, GivesBackWhatWentIn) {
  EXPECT_TRUE(rc::check([](const std::string& bytes) {
    const auto decoded = DecodeBase64(EncodeBase64(bytes));
    RC_ASSERT(decoded.ok());
    RC_ASSERT(*decoded == bytes);
  }));
}

TEST(Base64, AllowsLineBreaks) { EXPECT_EQ(*DecodeBase64("aGVs\nbG8=\n"), "hello"); }

TEST(Base64, RefusesOtherText) {
  EXPECT_FALSE(DecodeBase64("a").ok());
  EXPECT_FALSE(DecodeBase64("a*==").ok());
}

}  // namespace
}  // namespace lockstep::kube
