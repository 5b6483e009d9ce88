#include "runtime/checkpoint/shard_messages.h"

#include <algorithm>
#include <utility>

#include "runtime/common/base/json.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenReports = 1s;
constexpr auto kPatience = 1s;  // between two checks whether the save was abandoned

std::string KeyOf(const SaveKey& save, int rank, std::string_view last = "") {
  std::string key = "checkpoint";
  for (const int64_t part : {save.round, save.step, int64_t{save.attempt}, int64_t{rank}}) {
    key += '/';
    key += std::to_string(part);
  }
  return key.append(last);
}

std::string ProgressKeyOf(const SaveKey& save, int rank) { return KeyOf(save, rank, "/progress"); }

// A rank publishes this instead of its shard if there will be none.
std::string EncodeFailure(const Error& error) {
  return DumpJson({{"code", static_cast<int>(error.code)}, {"error", error.message}});
}

std::string NameOf(int rank) { return "rank " + std::to_string(rank); }

Result<ShardEntry> DecodePublished(const std::string& text, int rank) {
  const auto json = ParseJson(text);
  if (json.ok() && FindJson(*json, {"error"}) != nullptr) {
    return Error{static_cast<ErrorCode>(IntAt(*json, {"code"})), StringAt(*json, {"error"})}.WithContext(
        NameOf(rank));
  }
  return ParseShardEntry(text);
}

}  // namespace

Error Abandoned() { return {ErrorCode::kAborted, "the save was abandoned"}; }

Result<void> PublishShard(ShardExchange& exchange, const SaveKey& save, int rank,
                          const Result<ShardEntry>& shard) {
  return exchange.Publish(KeyOf(save, rank),
                          shard.ok() ? EncodeShardEntry(*shard) : EncodeFailure(shard.error()));
}

ShardReporter::ShardReporter(ShardExchange* exchange, const SaveKey& save, int rank, const Clock& clock,
                             Progress& progress)
    : exchange_(exchange),
      save_(save),
      rank_(rank),
      clock_(clock),
      progress_(progress),
      published_(clock.Steady()) {}

void ShardReporter::Advanced(int64_t bytes) {
  progress_ += bytes;
  if (exchange_ == nullptr || rank_ == 0 || !can_publish_) return;
  if (clock_.Steady() - published_ < kBetweenReports) return;
  published_ = clock_.Steady();
  // If this fails, rank 0 is gone and the save has failed; PublishShard will report that.
  can_publish_ = exchange_->Publish(ProgressKeyOf(save_, rank_), std::to_string(progress_.load())).ok();
}

ShardWait::ShardWait(ShardExchange& exchange, const SaveKey& save, std::stop_token stop, const Clock& clock,
                     Progress& progress)
    : exchange_(exchange), save_(save), stop_(std::move(stop)), clock_(clock), progress_(progress) {}

Result<ShardEntry> ShardWait::Await(int rank) {
  published_.clear();
  since_ = clock_.Steady();
  while (!stop_.stop_requested()) {
    const auto text = exchange_.Wait(KeyOf(save_, rank), gave_up_ ? 0s : kPatience);
    if (text.ok()) return DecodePublished(*text, rank);
    if (text.error().code != ErrorCode::kDeadlineExceeded) return text.error();
    if (std::optional<Error> end = Judge(rank)) return *std::move(end);
  }
  return Abandoned();
}

std::optional<Error> ShardWait::Judge(int rank) {
  const SteadyTime now = clock_.Steady();
  const auto progress = exchange_.Wait(ProgressKeyOf(save_, rank), 0s);
  if (progress.ok() && std::exchange(published_, *progress) != *progress) {
    since_ = now;
    ++progress_;
  }
  if (!over_since_ && exchange_.IsOver()) over_since_ = now;
  const bool is_stalled = now - since_ > kStallLimit;
  const bool is_left_behind = over_since_ && now - std::max(since_, *over_since_) > kStallLimitAfterTheRound;
  gave_up_ = gave_up_ || is_stalled || is_left_behind;
  if (!gave_up_) return std::nullopt;
  if (over_since_) {
    return Error{ErrorCode::kAborted, "the round ended before " + NameOf(rank) + " had stored its shard"};
  }
  return Error{ErrorCode::kDeadlineExceeded,
               NameOf(rank) + " has not stored its shard, and has made no progress with it for " +
                   std::to_string(kStallLimit.count()) + " s"};
}

}  // namespace lockstep::checkpoint
