#include "operator/kube/status_error.h"

#include <gtest/gtest.h>

namespace lockstep::kube {
namespace {

Error Of(const char* status) { return ErrorFromStatus(*ParseJson(status), 500); }

TEST(StatusError, HasTheCodeOfTheReasonAndElseOfTheNumber) {
  EXPECT_EQ(Of(R"({"code": 409, "reason": "AlreadyExists"})").code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(Of(R"({"code": 409, "reason": "Conflict"})").code, ErrorCode::kConflict);
  EXPECT_EQ(Of(R"({"code": 403, "reason": "Forbidden"})").code, ErrorCode::kForbidden);
  EXPECT_EQ(Of(R"({"message": "?"})").code, ErrorCode::kUnavailable);
}

TEST(StatusError, TakesANamespaceThatEndsForOneThatIsGone) {
  const Error error = Of(R"({"code": 403, "reason": "Forbidden", "message": "is being terminated",
    "details": {"name": "a", "causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}})");
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_EQ(error.message, "403 is being terminated");
  EXPECT_EQ(Of(R"({"code": 403, "reason": "Forbidden", "details": {"causes": [{"reason": "Other"}]}})").code,
            ErrorCode::kForbidden);
}

}  // namespace
}  // namespace lockstep::kube
