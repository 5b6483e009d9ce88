#include "operator/kube/watch_decoder.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace lockstep::kube {
namespace {

const std::string kStream =
    "{\"type\":\"ADDED\",\"object\":{\"n\":1}}\n{\"type\":\"MODIFIED\",\"object\":{\"n\":2}}\n\n"
    "{\"type\":\"DELETED\",\"object\":{\"n\":3}}\n{\"type\":\"BOOKMARK\",\"object\":{\"n\":4}}\n"
    "{\"type\":\"ERROR\",\"object\":{\"n\":5}}\n";

TEST(WatchDecoder, GivesTheSameEventsHoweverTheStreamIsCut) {
  EXPECT_TRUE(rc::check([] {
    WatchDecoder decoder(100);
    std::vector<int> seen;
    std::string_view rest = kStream;
    while (!rest.empty()) {
      const auto size = *rc::gen::inRange<std::size_t>(1, rest.size() + 1);
      const auto go_on = decoder.Feed(rest.substr(0, size), [&](const WatchEvent& event) {
        RC_ASSERT(static_cast<int>(event.type) + 1 == event.object["n"]);
        seen.push_back(event.object["n"]);
        return true;
      });
      RC_ASSERT(go_on.ok() && *go_on);
      rest.remove_prefix(size);
    }
    RC_ASSERT(seen == (std::vector<int>{1, 2, 3, 4, 5}));
  }));
}

TEST(WatchDecoder, EndsWhenTheHandlerAsksForIt) {
  WatchDecoder decoder(100);
  int events = 0;
  const auto go_on = decoder.Feed(kStream, [&](const WatchEvent&) { return ++events < 2; });
  ASSERT_TRUE(go_on.ok());
  EXPECT_FALSE(*go_on);
  EXPECT_EQ(events, 2);
}

TEST(WatchDecoder, RefusesWhatCannotBeTrusted) {
  const auto ignore = [](const WatchEvent&) { return true; };
  for (const std::string text : {"no json\n", "{\"type\":\"WHAT\",\"object\":{}}\n", "{\"type\":\"ADDED\"}\n",
                                 "[]\n", "{\"type\":\"ADDED\",\"object\":[]}\n"}) {
    EXPECT_FALSE(WatchDecoder(100).Feed(text, ignore).ok()) << text;
  }
  WatchDecoder decoder(10);
  EXPECT_TRUE(decoder.Feed("12345", ignore).ok());
  const auto too_long = decoder.Feed("678901", ignore);
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code, ErrorCode::kDataLoss);
}

}  // namespace
}  // namespace lockstep::kube
