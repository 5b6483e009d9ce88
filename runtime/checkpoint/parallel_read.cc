#include "runtime/checkpoint/parallel_read.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
constexpr std::size_t kReaders = 8;

class Reading {
 public:
  Reading(ObjectStore& store, const std::string& name, std::span<char> target)
      : store_(store),
        name_(name),
        target_(target),
        arrived_((target.size() + kPieceBytes - 1) / kPieceBytes) {
    for (std::size_t i = 0; i < std::min(kReaders, arrived_.size()); ++i)
      readers_.emplace_back([this](const std::stop_token& stop) { ReadPieces(stop); });
  }

  [[nodiscard]] std::size_t pieces() const { return arrived_.size(); }

  Result<std::string_view> Await(std::size_t piece) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_[piece] || error_.has_value(); });
    if (error_.has_value()) return *error_;
    const std::span<char> bytes = Bytes(piece);
    return std::string_view(bytes.data(), bytes.size());
  }

 private:
  [[nodiscard]] std::span<char> Bytes(std::size_t piece) const {
    const std::size_t begin = piece * kPieceBytes;
    return target_.subspan(begin, std::min(kPieceBytes, target_.size() - begin));
  }

  void ReadPieces(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested() && !error_.has_value() && next_ < arrived_.size()) {
      const std::size_t piece = next_++;
      lock.unlock();
      const Result<void> read = store_.Read(name_, static_cast<int64_t>(piece * kPieceBytes), Bytes(piece));
      lock.lock();
      if (!read.ok() && !error_.has_value()) error_ = read.error();
      arrived_[piece] = read.ok();
      changed_.notify_all();
    }
  }

  ObjectStore& store_;
  const std::string& name_;
  const std::span<char> target_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_ = 0;               // GUARDED_BY(mutex_)
  std::vector<bool> arrived_;          // GUARDED_BY(mutex_)
  std::optional<Error> error_;         // GUARDED_BY(mutex_)
  std::vector<std::jthread> readers_;  // last: they end before the rest goes
};

}  // namespace

Result<void> ReadInPieces(ObjectStore& store, const std::string& name, std::span<char> target,
                          const std::function<void(std::string_view piece)>& look) {
  Reading reading(store, name, target);
  for (std::size_t piece = 0; piece < reading.pieces(); ++piece) {
    LOCKSTEP_TRY(const std::string_view arrived, reading.Await(piece));
    look(arrived);
  }
  return {};
}

}  // namespace lockstep::checkpoint
