#include "runtime/tools/kubectl_plugin/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/base/json.h"
#include "runtime/tools/kubectl_plugin/failure_text.h"
#include "runtime/tools/kubectl_plugin/json_stream.h"

namespace lockstep::kubectl_plugin {
namespace {

using ::testing::ElementsAre;

TEST(DurationText, HasTwoUnitsAtMost) {
  for (const auto& [seconds, text] :
       {std::pair(-1.0, "0 s"), std::pair(0.42, "0.4 s"), std::pair(9.96, "10 s"), std::pair(59.0, "59 s"),
        std::pair(200.0, "3 min 20 s"), std::pair(7200.0, "2 h"), std::pair(7500.0, "2 h 5 min"),
        std::pair(273'600.0, "3 d 4 h")})
    EXPECT_EQ(DurationText(seconds), text);
}

TEST(OneLine, HoldsNothingThatControlsATerminal) { EXPECT_EQ(OneLine("a\033[2Jb\tc\nd"), "a?[2Jb?c"); }

TEST(Columns, AreEquallyWide) {
  EXPECT_THAT(Columns({{"A", "LONG", "C"}, {"abc", "", "d"}}), ElementsAre("A    LONG  C", "abc  -     d"));
}

TEST(JsonStream, CutsObjectsOutOfAnyPieces) {
  const std::string text = "{\n \"a\": \"}{\\\"\"\n}\n{\"b\": {\"c\": [{}]}}\n{\"unfinished\": ";
  for (const std::size_t size : {std::size_t{1}, std::size_t{3}, text.size()}) {
    JsonStream stream;
    std::vector<std::string> dumped;
    for (std::size_t i = 0; i < text.size(); i += size) {
      for (const std::string& object : stream.Add(std::string_view(text).substr(i, size)))
        dumped.push_back(Json::parse(object).dump());
    }
    EXPECT_THAT(dumped, ElementsAre(R"({"a":"}{\""})", R"({"b":{"c":[{}]}})")) << size;
  }
}

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
