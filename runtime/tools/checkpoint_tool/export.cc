#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/strings.h"
#include "runtime/tools/checkpoint_tool/commands.h"
#include "runtime/tools/checkpoint_tool/new_file.h"
#include "runtime/tools/checkpoint_tool/selection.h"
#include "runtime/tools/checkpoint_tool/text.h"

namespace lockstep::checkpoint_tool {
namespace {

using checkpoint::Manifest;
using checkpoint::ShardEntry;
using checkpoint::StoredStep;
using checkpoint::TensorEntry;
using checkpoint::TensorPlace;

// Whether a tensor is wanted, by its name.
using Filter = bool (*)(std::string_view name);
bool IsAny(std::string_view /*name*/) { return true; }

// The tensors of a shard that are wanted, in the order in which a reader of the shard meets them: so they lie
// in the file, too.
std::vector<TensorPlace> WantedOf(const ShardEntry& shard, Filter is_wanted) {
  std::vector<TensorPlace> wanted;
  for (const TensorPlace& tensor : shard.tensors) {
    if (is_wanted(tensor.name)) wanted.push_back(tensor);
  }
  std::sort(wanted.begin(), wanted.end(), [](const TensorPlace& a, const TensorPlace& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  return wanted;
}

std::map<std::string, std::string> MetadataOf(const Manifest& manifest) {
  return {{"format", "pt"},
          {"job", manifest.job_name},
          {"jobUid", manifest.job_uid},
          {"step", std::to_string(manifest.step)},
          {"epoch", FormatNumber(manifest.epoch, 12)},
          {"time", manifest.time},
          {"training", DumpJson(manifest.training)}};
}

struct Head {
  std::string text;
  std::map<std::string, TensorEntry> tensors;  // their offsets are those in the file
};

Head HeadOf(const Manifest& manifest, Filter is_wanted) {
  std::vector<TensorEntry> entries;
  uint64_t offset = 0;
  for (const ShardEntry& shard : manifest.shards) {
    for (const TensorPlace& tensor : WantedOf(shard, is_wanted)) {
      const uint64_t end = offset + static_cast<uint64_t>(tensor.bytes);
      entries.push_back({tensor.name, tensor.dtype, tensor.shape, offset, end});
      offset = end;
    }
  }
  Head head{.text = checkpoint::EncodeHeader(entries, MetadataOf(manifest))};
  for (TensorEntry& entry : entries) {
    entry.begin += head.text.size();
    entry.end += head.text.size();
    head.tensors[entry.name] = std::move(entry);
  }
  return head;
}

// The part of a shard's piece that belongs to the tensor.
std::string_view Overlap(const TensorPlace& tensor, int64_t offset, std::string_view piece) {
  const int64_t begin = std::max(tensor.offset, offset);
  const int64_t end = std::min(tensor.offset + tensor.bytes, offset + static_cast<int64_t>(piece.size()));
  if (begin >= end) return {};
  return piece.substr(static_cast<std::size_t>(begin - offset), static_cast<std::size_t>(end - begin));
}

// Receives the bytes of a tensor from its `begin`th on.
using TakePart = std::function<Result<void>(const TensorPlace& tensor, int64_t begin, std::string_view part)>;

// Wrong places in the manifest end here: StreamShard compares them with the shard before it gives anything.
Result<void> ReadWanted(const Place& place, const StoredStep& stored, const ShardEntry& shard,
                        Filter is_wanted, const TakePart& take) {
  const std::vector<TensorPlace> wanted = WantedOf(shard, is_wanted);
  return checkpoint::StreamShard(
      place.store, stored, shard, [&](int64_t offset, std::string_view piece) -> Result<void> {
        for (const TensorPlace& tensor : wanted) {
          const std::string_view part = Overlap(tensor, offset, piece);
          if (!part.empty()) LOCKSTEP_TRY(take(tensor, std::max<int64_t>(offset - tensor.offset, 0), part));
        }
        return {};
      });
}

bool HasAverage(const ShardEntry& shard) { return !WantedOf(shard, checkpoint::IsOfAverage).empty(); }

// Where the weight of an average begins in the file.
Result<int64_t> PositionOf(const TensorPlace& average, const Head& head) {
  const auto weight = head.tensors.find(average.name.substr(checkpoint::kAveragePrefix.size()));
  if (weight == head.tensors.end() || weight->second.shape != average.shape ||
      weight->second.dtype != average.dtype)
    return Error{ErrorCode::kDataLoss, average.name + " belongs to no parameter of its shape and type"};
  if (average.dtype != "F32") {
    return Error{ErrorCode::kInvalidArgument,
                 "--average: " + average.name + " is " + average.dtype + "; only F32 can be added"};
  }
  return static_cast<int64_t>(weight->second.begin);
}

// Makes the weights of the file the averages: the checkpoint has the averages minus the weights.
Result<void> AddAverages(const Place& place, const StoredStep& stored, const ShardEntry& shard,
                         const Head& head, NewFile& file) {
  std::string rest;  // of a number that the piece before has begun
  return ReadWanted(place, stored, shard, checkpoint::IsOfAverage,
                    [&](const TensorPlace& tensor, int64_t begin, std::string_view part) -> Result<void> {
                      LOCKSTEP_TRY(const int64_t position, PositionOf(tensor, head));
                      begin -= static_cast<int64_t>(rest.size());
                      rest += part;
                      const std::size_t whole = rest.size() / sizeof(float) * sizeof(float);
                      LOCKSTEP_TRY(file.AddFloats(position + begin, std::string_view(rest).substr(0, whole)));
                      rest.erase(0, whole);
                      return {};
                    });
}

Result<std::string> Write(const Place& place, const ExportArguments& arguments) {
  LOCKSTEP_TRY(const StoredStep stored, FindCheckpoint(place, arguments.step));
  LOCKSTEP_TRY(const Manifest manifest, checkpoint::ReadManifest(place.store, stored.step));
  if (arguments.average && std::none_of(manifest.shards.begin(), manifest.shards.end(), HasAverage)) {
    return Error{ErrorCode::kInvalidArgument,
                 "--average: step " + std::to_string(manifest.step) +
                     " has no average of the weights: its job had no spec.training.optimizer.weightAverage"};
  }
  LOCKSTEP_TRY(NewFile file, NewFile::Make(arguments.file));
  const Filter is_wanted = arguments.weights_only || arguments.average ? checkpoint::IsOfModel : IsAny;
  const Head head = HeadOf(manifest, is_wanted);
  LOCKSTEP_TRY(file.Append(head.text));
  for (const ShardEntry& shard : manifest.shards) {
    LOCKSTEP_TRY(
        ReadWanted(place, stored, shard, is_wanted,
                   [&](const TensorPlace&, int64_t, std::string_view part) { return file.Append(part); }));
  }
  for (const ShardEntry& shard : manifest.shards) {
    if (arguments.average && HasAverage(shard)) LOCKSTEP_TRY(AddAverages(place, stored, shard, head, file));
  }
  LOCKSTEP_TRY(file.Keep());
  return arguments.file + ": step " + std::to_string(manifest.step) + " of " + manifest.job_name + ", " +
         std::to_string(head.tensors.size()) + " tensors";
}

}  // namespace

int Export(const Place& place, const ExportArguments& arguments) {
  auto written = Write(place, arguments);
  if (written.ok()) {
    std::cout << Printable(*written) << "\n";
    return kDone;
  }
  Error error = written.error();
  if (error.code == ErrorCode::kDataLoss) error.message += "; choose another checkpoint with --step";
  return Refuse(error);
}

}  // namespace lockstep::checkpoint_tool
