#include "runtime/comm/device_group.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <map>
#include <thread>

#include "runtime/comm/torch_error.h"

namespace lockstep::comm {
namespace {

// A sum of a large model takes milliseconds; a query costs about a microsecond.
constexpr std::chrono::microseconds kPoll{20};

}  // namespace

Result<void> CheckDevices(std::span<const std::string> ids, int own_rank) {
  std::map<std::string, std::size_t> rank_of;
  for (std::size_t rank = 0; rank < ids.size(); ++rank) {
    if (ids[rank] == kNoDevice) continue;
    const auto [first, is_new] = rank_of.emplace(ids[rank], rank);
    if (is_new) continue;
    return Error{ErrorCode::kInvalidArgument, "ranks " + std::to_string(first->second) + " and " +
                                                  std::to_string(rank) + " are on one device, " + ids[rank] +
                                                  ": each rank needs one of its own"};
  }
  for (std::size_t rank = 0; rank < ids.size() && !rank_of.empty(); ++rank) {
    if (ids[rank] != kNoDevice) continue;
    const bool is_mine = ids[static_cast<std::size_t>(own_rank)] == kNoDevice;
    return Error{is_mine ? ErrorCode::kDeviceLost : ErrorCode::kAborted,
                 "rank " + std::to_string(rank) + " has no device, and rank " +
                     std::to_string(rank_of.begin()->second) + " has " + rank_of.begin()->first +
                     ": all ranks need one, or none"};
  }
  return {};
}

Result<void> AwaitDeviceWork(c10d::Work& work, const std::function<bool()>& aborted,
                             std::chrono::milliseconds deadline, std::string_view operation) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  const auto is_over = [&] {
    return Error{ErrorCode::kAborted, std::string(operation) + ": the round was aborted"};
  };
  bool is_late = false;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kAborted, operation, [&] {
    while (!aborted() && !work.isCompleted()) {
      is_late = std::chrono::steady_clock::now() > end;
      if (is_late) return;
      std::this_thread::sleep_for(kPoll);
    }
    if (const std::exception_ptr problem = work.exception()) std::rethrow_exception(problem);
    // An abort completes the work, too.
    if (!aborted()) work.synchronize();
  }));
  if (aborted()) return is_over();
  if (is_late) {
    return Error{ErrorCode::kAborted,
                 std::string(operation) + ": timed out after " + std::to_string(deadline.count()) + " ms"};
  }
  return {};
}

}  // namespace lockstep::comm
