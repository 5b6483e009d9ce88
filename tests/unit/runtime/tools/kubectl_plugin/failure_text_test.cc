#include "runtime/tools/kubectl_plugin/failure_text.h"

#include <gtest/gtest.h>

namespace lockstep::kubectl_plugin {
namespace {

struct Failure {
  const char* said;
  ErrorCode code;
  const char* message;
};

TEST(ExplainFailure, IsOneClearLine) {
  const Failure failures[] = {
      {"Error from server (NotFound): distributedtrainingjobs.lockstep.dev \"fashion\" not found\n",
       ErrorCode::kNotFound,
       "there is no job \"fashion\" in this namespace; `kubectl lockstep status -A` lists all jobs"},
      {"Error: failed to create typed patch object (team/a; …): .spec.x: field not declared in schema\n",
       ErrorCode::kInvalidArgument,
       "Error: failed to create typed patch object (team/a; …): .spec.x: field not declared in schema; "
       "`kubectl lockstep validate` says which field was probably meant"},
      {"Error from server (NotFound): pods \"x\" not found\n", ErrorCode::kNotFound, "pods \"x\" not found"},
      {"error: the server doesn't have a resource type \"distributedtrainingjobs\"\n",
       ErrorCode::kUnsupported,
       "this cluster has no DistributedTrainingJobs: Lockstep is not installed, or --context names another "
       "cluster"},
      {"Error from server (Forbidden): distributedtrainingjobs.lockstep.dev \"a\" is forbidden: User \"eve\" "
       "cannot get\n",
       ErrorCode::kForbidden,
       "not allowed: distributedtrainingjobs.lockstep.dev \"a\" is forbidden: User \"eve\" cannot get"},
      {"E1122 23:41:40.123456    7 memcache.go:265] \"Unhandled Error\" err=\"dial tcp\"\n"
       "The connection to the server localhost:8080 was refused - did you specify the right host or port?\n",
       ErrorCode::kUnavailable,
       "no connection to the API server: The connection to the server localhost:8080 was refused - did you "
       "specify the "
       "right host or port?"},
      {"error: context \"nowhere\" does not exist\n", ErrorCode::kInternal,
       "context \"nowhere\" does not exist"},
      {"The DistributedTrainingJob \"a\" is invalid: \n* spec.a: wrong\n* spec.b: wrong\n",
       ErrorCode::kInternal, "The DistributedTrainingJob \"a\" is invalid:  * spec.a: wrong * spec.b: wrong"},
      {"", ErrorCode::kInternal, "kubectl failed without saying why"}};
  for (const Failure& failure : failures) {
    const Error error = ExplainFailure(failure.said);
    EXPECT_EQ(error.message, failure.message);
    EXPECT_EQ(error.code, failure.code) << failure.said;
  }
}

}  // namespace
}  // namespace lockstep::kubectl_plugin
