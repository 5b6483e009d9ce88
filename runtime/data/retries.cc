#include "runtime/data/retries.h"

#include <algorithm>

namespace lockstep::data {
namespace {

constexpr Milliseconds kFirstPause{500};
constexpr Milliseconds kLongestPause{8'000};
constexpr Seconds kLeastPatienceForFiles{60};
constexpr Milliseconds kBetweenSignsOfLife{1'000};

}  // namespace

Milliseconds PauseBeforeRetry(int failures) {
  return std::min(kFirstPause * (1 << std::min(failures - 1, 10)), kLongestPause);
}

Retries RetriesOfFiles(Retries retries, std::function<void()> alive) {
  retries.patience = std::max(retries.patience, kLeastPatienceForFiles);
  retries.pause = [pause = std::move(retries.pause), alive = std::move(alive)](Milliseconds time) {
    for (; time > Milliseconds(0); time -= kBetweenSignsOfLife) {
      alive();
      pause(std::min(time, kBetweenSignsOfLife));
    }
  };
  return retries;
}

}  // namespace lockstep::data
