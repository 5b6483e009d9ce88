#include "runtime/launch/supervisor/program_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/common/base/strings.h"

namespace lockstep::launch {
namespace {

struct Shown {
  std::string out;
  std::string err;
};

// What a printer writes when `send` sends.
template <typename Body>
Shown WhatIsShown(bool with_prefix, const Body& send) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    const ProgramOutputPrinter printer{Fd(ends[0]), with_prefix};
    ProgramOutputSender sender{Fd(ends[1])};
    send(sender);
  }  // closes the sender's end first
  return {::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

TEST(ProgramOutput, KeepsTheStreamsApart) {
  const auto send = [](ProgramOutputSender& sender) {
    sender.Send(0, OutputStream::kOutput, "a line with spaces");
    sender.Send(12, OutputStream::kError, "Error: of rank 12");
    sender.Send(1, OutputStream::kOutput, "");
  };
  const Shown with = WhatIsShown(true, send);
  EXPECT_EQ(with.out, "[rank 0] a line with spaces\n[rank 1] \n");
  EXPECT_EQ(with.err, "[rank 12] Error: of rank 12\n");
  const Shown without = WhatIsShown(false, send);
  EXPECT_EQ(without.out, "a line with spaces\n\n");
  EXPECT_EQ(without.err, "Error: of rank 12\n");
}

TEST(ProgramOutput, KeepsLongLinesOfSeveralRanksWhole) {
  constexpr int kRanks = 3;
  constexpr int kLines = 50;
  const std::string text(16'384, 'x');  // several times the capacity of an atomic pipe write
  const Shown shown = WhatIsShown(true, [&](ProgramOutputSender& sender) {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&sender, &text, rank] {
        for (int line = 0; line < kLines; ++line) sender.Send(rank, OutputStream::kOutput, text);
      });
    }
  });
  const std::vector<std::string> lines = Split(shown.out, '\n');
  ASSERT_EQ(lines.size(), kRanks * kLines + 1U) << "nothing behind the last newline";
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string whole = "[rank " + std::to_string(rank) + "] " + text;
    EXPECT_EQ(std::count(lines.begin(), lines.end(), whole), kLines);
  }
}

}  // namespace
}  // namespace lockstep::launch
