#include "operator/sharding/shard_table.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::sharding {
namespace {

constexpr std::string_view kAnnotation = "lockstep.dev/shards";
constexpr int kHexadecimal = 16;
// An object may have 256 KiB of annotations: larger bundles are left out.
constexpr std::size_t kMostAuthorities = 8'192;

std::string IdentitiesOf(const ShardTable& table) {
  std::vector<std::string> identities;
  identities.reserve(table.replicas.size());
  for (const auto& [identity, replica] : table.replicas) identities.push_back(identity);
  return Join(identities, ",");
}

ShardTable TableFromText(const std::string& text) {
  ShardTable table;
  const auto json = ParseJson(text);
  if (!json.ok()) return table;
  if (const Json* replicas = FindJson(*json, {"replicas"}); replicas != nullptr && replicas->is_object()) {
    for (const auto& [identity, replica] : replicas->items()) {
      table.replicas[identity] = {.renewed = StringAt(replica, {"renewed"}),
                                  .duration_seconds = IntAt(replica, {"durationSeconds"}, 15),
                                  .address = StringAt(replica, {"address"}),
                                  .authorities = StringAt(replica, {"authorities"})};
    }
  }
  const Json* holders = FindJson(*json, {"holders"});
  if (holders == nullptr || !holders->is_array()) return table;
  for (std::size_t shard = 0; shard < std::min(kShards, holders->size()); ++shard) {
    const Json& holder = holders->at(shard);
    if (holder.is_string() && table.replicas.contains(holder.get<std::string>()))
      table.holders.at(shard) = holder.get<std::string>();
  }
  return table;
}

Json TableToJson(const ShardTable& table) {
  Json replicas = Json::object();
  for (const auto& [identity, replica] : table.replicas) {
    replicas[identity] = {{"renewed", replica.renewed},
                          {"durationSeconds", replica.duration_seconds},
                          {"address", replica.address}};
    const std::string& authorities = replica.authorities;
    if (!authorities.empty() && authorities.size() <= kMostAuthorities)
      replicas[identity]["authorities"] = authorities;
  }
  return {{"replicas", std::move(replicas)}, {"holders", table.holders}};
}

}  // namespace

std::size_t ShardOf(std::string_view job_uid) {
  const std::string hash = StableHash(job_uid);
  uint64_t number = 0;
  std::from_chars(hash.data(), hash.data() + hash.size(), number, kHexadecimal);
  // The low bits of FNV-1a depend only on the low bits of the text.
  return static_cast<std::size_t>((number ^ (number >> 32U)) % kShards);
}

std::string PodOf(const std::string& identity) { return identity.substr(0, identity.rfind('_')); }

ShardSet ShardsOf(const ShardTable& table, const std::string& identity) {
  ShardSet shards;
  for (std::size_t shard = 0; shard < kShards; ++shard) shards[shard] = table.holders.at(shard) == identity;
  return shards;
}

ShardTable TableFromLease(const Json& lease) {
  const kube::LeaseRecord record = kube::LeaseRecordFromJson(lease);
  if (record.holder.empty()) return {};
  ShardTable table = TableFromText(StringAt(lease, {"metadata", "annotations", kAnnotation}));
  if (IdentitiesOf(table) == record.holder) return table;
  table = {.replicas = {{record.holder,
                         {.renewed = record.renew_time, .duration_seconds = record.duration_seconds}}},
           .is_sole_leader = true};
  table.holders.fill(record.holder);
  return table;
}

void PutTable(const ShardTable& table, const kube::LeaseTimings& timings, WallTime wall, Json& lease) {
  kube::LeaseRecord record = kube::LeaseRecordFromJson(lease);
  const std::string identities = IdentitiesOf(table);
  if (identities != record.holder) {
    if (!record.renew_time.empty()) ++record.transitions;
    record.acquire_time = FormatMicroTime(wall);
  }
  record.holder = identities;
  record.renew_time = FormatMicroTime(wall);
  // A lease without a holder needs no expiry.
  record.duration_seconds =
      identities.empty() ? 1 : std::chrono::duration_cast<std::chrono::seconds>(timings.duration).count();
  lease["spec"] = kube::LeaseSpecToJson(record);
  lease["metadata"]["annotations"][std::string(kAnnotation)] = DumpJson(TableToJson(table));
}

}  // namespace lockstep::sharding
