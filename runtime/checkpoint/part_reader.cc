#include "runtime/checkpoint/part_reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/checkpoint/block_sums.h"
#include "runtime/checkpoint/sha256.h"
#include "runtime/checkpoint/stored_checkpoints.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kRequestBytes = int64_t{8} << 20;
constexpr std::size_t kReaders = 8;

// Bytes of an object from `begin` on, and their destination.
struct Copy {
  int64_t begin = 0;
  std::span<char> target;

  [[nodiscard]] int64_t end() const { return begin + static_cast<int64_t>(target.size()); }
};

// Whole blocks of a shard, and the wanted bytes in them.
struct Request {
  const ShardEntry* shard = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<Copy> copies{};
};

int64_t BlockBytesOf(const ShardEntry& shard) {
  return shard.block_bytes > 0 ? std::min(shard.block_bytes, shard.bytes) : shard.bytes;
}

std::map<const ShardEntry*, std::vector<Copy>> CopiesByShard(const Manifest& manifest,
                                                             const std::vector<WantedPart>& wanted) {
  std::map<std::string_view, std::pair<const ShardEntry*, const TensorPlace*>> places;
  for (const ShardEntry& shard : manifest.shards) {
    for (const TensorPlace& place : shard.tensors) places[place.name] = {&shard, &place};
  }
  std::map<const ShardEntry*, std::vector<Copy>> copies;
  for (const WantedPart& part : wanted) {
    const auto found = places.find(part.tensor);
    LOCKSTEP_CHECK(found != places.end(), "a part of a tensor that is stored");
    const auto [shard, place] = found->second;
    LOCKSTEP_CHECK(part.begin + static_cast<int64_t>(part.target.size()) <= place->bytes,
                   "within the tensor");
    if (!part.target.empty()) copies[shard].push_back({place->offset + part.begin, part.target});
  }
  return copies;
}

// Adds the requests for these parts of a shard; adjacent blocks are combined.
void AddRequests(const ShardEntry& shard, std::vector<Copy> copies, std::vector<Request>& requests) {
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) { return a.begin < b.begin; });
  const int64_t block = BlockBytesOf(shard);
  const int64_t most = std::max<int64_t>(kRequestBytes / block, 1) * block;
  Request request{.shard = &shard};
  for (const Copy& copy : copies) {
    for (int64_t begin = copy.begin / block * block; begin < copy.end(); begin += block) {
      if (begin > request.end || begin - request.begin >= most) {
        if (!request.copies.empty()) requests.push_back(std::move(request));
        request = {.shard = &shard, .begin = begin, .end = begin};
      }
      if (request.copies.empty()) request.begin = begin;
      request.end = std::min(begin + block, shard.bytes);
      if (request.copies.empty() || request.copies.back().begin != copy.begin) request.copies.push_back(copy);
    }
  }
  if (!request.copies.empty()) requests.push_back(std::move(request));
}

class Reading {
 public:
  Reading(ObjectStore& store, int64_t step, const std::vector<Request>& requests)
      : store_(store), step_(step), requests_(requests) {}

  Result<int64_t> Run() {
    {
      std::vector<std::jthread> readers;
      for (std::size_t i = 0; i < std::min(kReaders, requests_.size()); ++i)
        readers.emplace_back([this] { FetchAll(); });
    }
    const MutexLock lock(mutex_);
    if (error_.has_value()) return *error_;
    return bytes_;
  }

 private:
  void FetchAll() {
    std::string buffer;
    MutexLock lock(mutex_);
    while (!error_.has_value() && next_ < requests_.size()) {
      const Request& request = requests_[next_++];
      lock.unlock();
      const Result<void> fetched = Fetch(request, buffer);
      lock.lock();
      if (!fetched.ok() && !error_.has_value()) error_ = fetched.error();
      bytes_ += request.end - request.begin;
    }
  }

  Result<void> Fetch(const Request& request, std::string& buffer) const {
    const std::string name = ObjectOf(step_, *request.shard);
    const int64_t bytes = request.end - request.begin;
    try {
      buffer.resize(static_cast<std::size_t>(bytes));
    } catch (const std::exception&) {  // on a separate thread it would end the process
      return Error{ErrorCode::kInternal,
                   "no memory for " + std::to_string(bytes) + " bytes of " + store_.UriOf(name)};
    }
    LOCKSTEP_TRY(store_.Read(name, request.begin, buffer));
    if (!IsSound(request, buffer)) {
      return Error{ErrorCode::kDataLoss, store_.UriOf(name) + ": bytes " + std::to_string(request.begin) +
                                             " to " + std::to_string(request.end) +
                                             " do not match the checksum in the manifest"};
    }
    for (const Copy& copy : request.copies) {
      const int64_t begin = std::max(copy.begin, request.begin);
      const int64_t end = std::min(copy.end(), request.end);
      std::memcpy(copy.target.data() + (begin - copy.begin), buffer.data() + (begin - request.begin),
                  static_cast<std::size_t>(end - begin));
    }
    return {};
  }

  static bool IsSound(const Request& request, std::string_view content) {
    const ShardEntry& shard = *request.shard;
    if (shard.block_bytes == 0) return Sha256(content) == shard.sha256;
    const std::string sums = BlockSums(content, shard.block_bytes);
    const auto first = static_cast<std::size_t>(request.begin / shard.block_bytes) * kDigitsOfASum;
    return std::string_view(shard.block_crc32).substr(first, sums.size()) == sums;
  }

  ObjectStore& store_;
  const int64_t step_;
  const std::vector<Request>& requests_;
  Mutex mutex_;
  std::size_t next_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::optional<Error> error_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace

Result<int64_t> ReadParts(ObjectStore& store, const Manifest& manifest,
                          const std::vector<WantedPart>& wanted) {
  std::vector<Request> requests;
  for (auto& [shard, copies] : CopiesByShard(manifest, wanted)) AddRequests(*shard, copies, requests);
  return Reading(store, manifest.step, requests).Run();
}

}  // namespace lockstep::checkpoint
