#include "runtime/tools/kubectl_plugin/json_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/base/json.h"

namespace lockstep::kubectl_plugin {
namespace {

using ::testing::ElementsAre;

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

}  // namespace
}  // namespace lockstep::kubectl_plugin
