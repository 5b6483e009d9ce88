#include "runtime/train/records/flight_trace.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/common/base/json.h"

namespace lockstep::train {
namespace {

constexpr const char* kCompleted = "completed";

bool IsCompleted(const Json& entry) { return StringAt(entry, {"state"}) == kCompleted; }

// Identifies a sequence of operations that end in the order in which they began: the collectives of a group,
// or the messages in one direction between two ranks (the name contains the ranks).
std::pair<int64_t, std::string> QueueOf(const Json& entry) {
  return {IntAt(entry, {"pg_id"}), BoolAt(entry, {"is_p2p"}) ? StringAt(entry, {"profiling_name"}) : ""};
}

// Without c10d's watchdog, the recorder is not notified when a collective ends. When it dumps, it queries the
// event of each, but the event of a collective that ended long ago is already reused by a younger one that
// may still run. So all operations before one that ended are marked as ended, and so are those that the rank has
// awaited, of which the events may all be those of younger ones.
void MarkEnded(Json& entries, std::chrono::nanoseconds ended_before) {
  std::set<std::pair<int64_t, std::string>> ended;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const auto queue = QueueOf(*entry);
    if (IsCompleted(*entry) || IntAt(*entry, {"time_created_ns"}) < ended_before.count()) ended.insert(queue);
    if (ended.contains(queue)) (*entry)["state"] = kCompleted;
  }
}

// Older groups belong to earlier rounds. Entries that c10d has retired have ended: it sees the end of Gloo's
// work, whose state it does not record.
const Json& WhereTheRankIs(const Json& entries) {
  int64_t newest = 0;
  for (const Json& entry : entries) newest = std::max(newest, IntAt(entry, {"pg_id"}));
  const Json* where = nullptr;
  for (const Json& entry : entries) {
    if (IntAt(entry, {"pg_id"}) != newest) continue;
    where = &entry;
    if (!IsCompleted(entry) && !BoolAt(entry, {"retired"})) break;
  }
  return *where;
}

}  // namespace

Result<FlightTrace> ReadFlightTrace(std::string_view dump, std::chrono::nanoseconds ended_before) {
  LOCKSTEP_TRY(Json trace, ParseJson(dump));
  const Json* const found = FindJson(trace, {"entries"});
  if (found == nullptr || !found->is_array() || found->empty())
    return Error{ErrorCode::kNotFound, "the flight recorder kept no collective"};
  Json& entries = trace["entries"];
  MarkEnded(entries, ended_before);
  const Json& where = WhereTheRankIs(entries);
  const bool is_message = BoolAt(where, {"is_p2p"});
  const Json* const sizes = FindJson(where, {"input_sizes"});
  return FlightTrace{.collective = StringAt(where, {"profiling_name"}),
                     .sequence = IntAt(where, {is_message ? "p2p_seq_id" : "collective_seq_id"}),
                     .state = StringAt(where, {"state"}),
                     .sizes = sizes == nullptr ? "" : DumpJson(*sizes),
                     .json = DumpJson(trace)};
}

}  // namespace lockstep::train
