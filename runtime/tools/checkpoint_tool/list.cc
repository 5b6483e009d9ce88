#include <algorithm>
#include <array>
#include <iomanip>
#include <iostream>

#include "runtime/common/base/json.h"
#include "runtime/common/base/strings.h"
#include "runtime/tools/checkpoint_tool/commands.h"
#include "runtime/tools/checkpoint_tool/selection.h"
#include "runtime/tools/checkpoint_tool/text.h"

namespace lockstep::checkpoint_tool {
namespace {

using checkpoint::Manifest;
using checkpoint::StoredStep;

struct Entry {
  StoredStep stored;
  std::optional<Manifest> manifest;  // where it can be read
  std::vector<std::string> problems;
};

int64_t BytesOf(const StoredStep& stored) {
  int64_t bytes = 0;
  for (const checkpoint::ObjectInfo& object : stored.objects) bytes += object.bytes;
  return bytes;
}

Result<Entry> Look(const Place& place, const StoredStep& stored) {
  Entry entry{.stored = stored, .manifest = {}, .problems = {}};
  if (!stored.has_manifest) {
    entry.problems.push_back("no " + std::string(checkpoint::kManifestName));
    return entry;
  }
  auto manifest = checkpoint::ReadManifest(place.store, stored.step);
  if (manifest.ok()) {
    entry.problems = checkpoint::MissingFrom(stored, *manifest);
    entry.manifest = *std::move(manifest);
  } else if (checkpoint::IsDamage(manifest.error())) {
    entry.problems.push_back(manifest.error().message);
  } else {
    return manifest.error();
  }
  return entry;
}

Json ToJson(const Place& place, const Entry& entry) {
  Json json = {{"step", entry.stored.step},
               {"uri", place.store.UriOf(checkpoint::FolderOfStep(entry.stored.step))},
               {"bytes", BytesOf(entry.stored)},
               {"complete", entry.problems.empty()},
               {"problems", entry.problems}};
  if (entry.manifest) {
    json["job"] = entry.manifest->job_name;
    json["jobUid"] = entry.manifest->job_uid;
    json["time"] = entry.manifest->time;
    json["epoch"] = entry.manifest->epoch;
    json["round"] = entry.manifest->round;
    json["world"] = entry.manifest->world;
    json["strategy"] = entry.manifest->strategy;
  }
  return json;
}

constexpr std::size_t kColumns = 6;
using Row = std::array<std::string, kColumns>;

Row RowOf(const Entry& entry) {
  const auto of_manifest = [&](const auto& text) {
    return entry.manifest ? Printable(text(*entry.manifest)) : "-";
  };
  return {of_manifest([](const Manifest& manifest) { return manifest.job_name; }),
          std::to_string(entry.stored.step),
          of_manifest([](const Manifest& manifest) { return manifest.time; }),
          of_manifest([](const Manifest& manifest) { return std::to_string(manifest.world); }),
          SizeText(BytesOf(entry.stored)),
          entry.problems.empty() ? "complete" : "incomplete: " + Printable(Join(entry.problems, "; "))};
}

void PrintTable(const std::vector<Entry>& entries) {
  std::vector<Row> rows = {{"JOB", "STEP", "TIME", "WORLD", "SIZE", "STATE"}};
  for (const Entry& entry : entries) rows.push_back(RowOf(entry));
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i) widths.at(i) = std::max(widths.at(i), row.at(i).size());
  }
  for (const Row& row : rows) {
    for (std::size_t i = 0; i + 1 < kColumns; ++i)
      std::cout << std::left << std::setw(static_cast<int>(widths.at(i)) + 2) << row.at(i);
    std::cout << row.back() << "\n";
  }
}

}  // namespace

int List(const Place& place, bool as_json) {
  const auto steps = checkpoint::ListSteps(place.store);
  if (!steps.ok()) return Refuse(steps.error());
  std::vector<Entry> entries;
  for (const StoredStep& stored : *steps) {
    auto entry = Look(place, stored);
    if (!entry.ok()) return Refuse(entry.error());
    entries.push_back(*std::move(entry));
  }
  if (as_json) {
    Json json = Json::array();
    for (const Entry& entry : entries) json.push_back(ToJson(place, entry));
    std::cout << DumpJson(json) << "\n";
  } else if (entries.empty()) {
    std::cout << NoCheckpoints(place).message << "\n";
  } else {
    PrintTable(entries);
  }
  return kDone;
}

}  // namespace lockstep::checkpoint_tool
