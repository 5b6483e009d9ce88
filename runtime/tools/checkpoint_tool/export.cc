#include <algorithm>
#include <iostream>

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

// The tensors of a shard that are wanted, in the order in which a reader of the shard meets them: so they lie
// in the file, too.
std::vector<TensorPlace> WantedOf(const ShardEntry& shard, bool weights_only) {
  std::vector<TensorPlace> wanted;
  for (const TensorPlace& tensor : shard.tensors) {
    if (!weights_only || checkpoint::IsOfModel(tensor.name)) wanted.push_back(tensor);
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
  std::size_t tensors = 0;
};

Head HeadOf(const Manifest& manifest, bool weights_only) {
  std::vector<TensorEntry> entries;
  uint64_t offset = 0;
  for (const ShardEntry& shard : manifest.shards) {
    for (const TensorPlace& tensor : WantedOf(shard, weights_only)) {
      const uint64_t end = offset + static_cast<uint64_t>(tensor.bytes);
      entries.push_back({tensor.name, tensor.dtype, tensor.shape, offset, end});
      offset = end;
    }
  }
  return {checkpoint::EncodeHeader(entries, MetadataOf(manifest)), entries.size()};
}

// The part of a shard's piece that belongs to the tensor.
std::string_view Overlap(const TensorPlace& tensor, int64_t offset, std::string_view piece) {
  const int64_t begin = std::max(tensor.offset, offset);
  const int64_t end = std::min(tensor.offset + tensor.bytes, offset + static_cast<int64_t>(piece.size()));
  if (begin >= end) return {};
  return piece.substr(static_cast<std::size_t>(begin - offset), static_cast<std::size_t>(end - begin));
}

// Wrong places in the manifest end here: StreamShard compares them with the shard before it gives anything.
Result<void> AppendShard(const Place& place, const StoredStep& stored, const ShardEntry& shard,
                         bool weights_only, NewFile& file) {
  const std::vector<TensorPlace> wanted = WantedOf(shard, weights_only);
  return checkpoint::StreamShard(place.store, stored, shard,
                                 [&](int64_t offset, std::string_view piece) -> Result<void> {
                                   for (const TensorPlace& tensor : wanted)
                                     LOCKSTEP_TRY(file.Append(Overlap(tensor, offset, piece)));
                                   return {};
                                 });
}

Result<std::string> Write(const Place& place, const ExportArguments& arguments) {
  LOCKSTEP_TRY(const StoredStep stored, FindCheckpoint(place, arguments.step));
  LOCKSTEP_TRY(const Manifest manifest, checkpoint::ReadManifest(place.store, stored.step));
  LOCKSTEP_TRY(NewFile file, NewFile::Make(arguments.file));
  const Head head = HeadOf(manifest, arguments.weights_only);
  LOCKSTEP_TRY(file.Append(head.text));
  for (const ShardEntry& shard : manifest.shards)
    LOCKSTEP_TRY(AppendShard(place, stored, shard, arguments.weights_only, file));
  LOCKSTEP_TRY(file.Keep());
  return arguments.file + ": step " + std::to_string(manifest.step) + " of " + manifest.job_name + ", " +
         std::to_string(head.tensors) + " tensors";
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
