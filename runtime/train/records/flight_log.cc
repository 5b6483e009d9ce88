#include "runtime/train/records/flight_log.h"

#include <utility>

#include "runtime/checkpoint/open_store.h"
#include "runtime/common/base/log.h"
#include "runtime/train/records/flight_trace.h"

namespace lockstep::train {
namespace {

// Per process, about a megabyte each. The first hangs are the most informative ones.
constexpr int kMostStored = 20;

// Opens the store separately, so that saves do not wait for a trace.
Result<std::string> StoreFlightTrace(const std::string& uri, const comm::BrokenTrace& broken,
                                     const std::string& trace) {
  const std::string name =
      "flight/round-" + std::to_string(broken.round) + "-rank-" + std::to_string(broken.rank) + ".json";
  LOCKSTEP_TRY(const auto store, checkpoint::OpenObjectStore(uri));
  LOCKSTEP_TRY(store->Put(name, trace));
  return store->UriOf(name);
}

void SayAndStore(const std::string& uri, const comm::BrokenTrace& broken) {
  const Result<FlightTrace> trace = ReadFlightTrace(broken.dump, broken.ended_before);
  if (!trace.ok())
    return log::Warning("no trace of the collectives",
                        {{"round", broken.round}, {"rank", broken.rank}, {"reason", trace.error().message}});
  log::Warning("the round broke at a collective of the device", {{"round", broken.round},
                                                                 {"rank", broken.rank},
                                                                 {"collective", trace->collective},
                                                                 {"sequence", trace->sequence},
                                                                 {"state", trace->state},
                                                                 {"sizes", trace->sizes}});
  if (uri.empty()) return;
  const Result<std::string> stored = StoreFlightTrace(uri, broken, trace->json);
  if (stored.ok()) return log::Info("trace of the collectives stored", {{"uri", *stored}});
  log::Warning("trace of the collectives not stored", {{"error", stored.error().message}});
}

}  // namespace

FlightLog::FlightLog(std::string uri) : uri_(std::move(uri)) {}

FlightLog::~FlightLog() = default;

void FlightLog::Keep(comm::BrokenTrace trace) {
  const MutexLock lock(mutex_);
  const std::string uri = ++kept_ <= kMostStored ? uri_ : "";
  store_ = std::jthread([before = std::move(store_), uri, trace = std::move(trace)]() mutable {
    if (before.joinable()) before.join();
    SayAndStore(uri, trace);
  });
}

}  // namespace lockstep::train
