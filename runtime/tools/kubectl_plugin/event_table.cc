#include "runtime/tools/kubectl_plugin/event_table.h"

#include <algorithm>
#include <optional>

#include "runtime/common/api/names.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::kubectl_plugin {
namespace {

struct Event {
  WallTime time;
  std::string type;
  std::string reason;
  std::string object;
  int64_t count = 1;
  std::string message;
};

// Events of an earlier job of the same name have another uid. Pods are matched by name, because an event
// outlives its pod and the pod's label.
bool IsOf(const api::TrainingJob& job, const Json& object) {
  const std::string kind = StringAt(object, {"kind"});
  const std::string name = StringAt(object, {"name"});
  if (kind == api::kKind)
    return name == job.metadata.name && StringAt(object, {"uid"}, job.metadata.uid) == job.metadata.uid;
  const std::string first_pod = api::PodName(job.metadata.name, 0);
  const std::string prefix = first_pod.substr(0, first_pod.size() - 1);
  return kind == "Pod" && name.starts_with(prefix) && name.size() > prefix.size() &&
         name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
}

// Both versions of the events API are in use, with different fields.
WallTime NewestTimeOf(const Json& event) {
  for (const std::string& text :
       {StringAt(event, {"series", "lastObservedTime"}), StringAt(event, {"lastTimestamp"}),
        StringAt(event, {"eventTime"}), StringAt(event, {"firstTimestamp"}),
        StringAt(event, {"metadata", "creationTimestamp"})}) {
    if (const auto time = ParseTime(text); time.ok()) return *time;
  }
  return {};
}

}  // namespace

command_line::Lines EventTable(const Json& list, const api::TrainingJob& job, WallTime now) {
  std::vector<Event> events;
  if (const Json* items = FindJson(list, {"items"})) {
    for (const Json& item : *items) {
      const Json* object = FindJson(item, {"involvedObject"});
      if (object == nullptr || !IsOf(job, *object)) continue;
      events.push_back({.time = NewestTimeOf(item),
                        .type = StringAt(item, {"type"}),
                        .reason = StringAt(item, {"reason"}),
                        .object = StringAt(*object, {"name"}),
                        .count = IntAt(item, {"series", "count"}, IntAt(item, {"count"}, 1)),
                        .message = command_line::OneLine(StringAt(item, {"message"}))});
    }
  }
  if (events.empty()) return {};
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.time < b.time; });
  std::vector<std::vector<std::string>> rows = {{"AGO", "TYPE", "REASON", "OBJECT", "TIMES", "MESSAGE"}};
  for (const Event& event : events) {
    rows.push_back({command_line::AgeText(event.time, now), event.type, event.reason, event.object,
                    std::to_string(event.count), event.message});
  }
  return command_line::Columns(rows);
}

}  // namespace lockstep::kubectl_plugin
