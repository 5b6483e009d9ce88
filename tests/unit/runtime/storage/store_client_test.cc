#include <gtest/gtest.h>

#include "runtime/storage/store_client.h"

namespace lockstep::storage {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kMebibyte = int64_t{1} << 20;

// How many MiB are passed, in pieces of one, between two waits.
int64_t NextWait(SendWindow& window) {
  for (int64_t pieces = 1;; ++pieces) {
    if (window.Fill(kMebibyte)) return pieces;
  }
}

TEST(SendWindow, GrowsWhereTheNetworkIsFast) {
  SendWindow window;
  EXPECT_EQ(NextWait(window), 10);
  for (const int64_t next : {20, 40, 80, 160, 160}) {
    window.Waited(100ms);
    EXPECT_EQ(NextWait(window), next);
  }
}

TEST(SendWindow, StaysWhereAWaitTakesSeconds) {
  SendWindow window;
  window.Waited(100ms);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(NextWait(window), 20);
    window.Waited(2s);
  }
}

TEST(SendWindow, ShrinksToOnePartWhereTheNetworkIsSlow) {
  SendWindow window;
  for (int i = 0; i < 2; ++i) window.Waited(100ms);
  for (const int64_t next : {40, 20, 10, 10}) {
    EXPECT_EQ(NextWait(window), next);
    window.Waited(5s);
  }
}

}  // namespace
}  // namespace lockstep::storage
