#include "operator/kube/event_recorder.h"

#include <utility>

#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::kube {
namespace {

constexpr std::size_t kMaxQueued = 1000;
constexpr std::size_t kMaxSeries = 1000;
constexpr std::size_t kMaxNote = 1024;             // the API's limit
constexpr std::chrono::seconds kSeriesPeriod{30};  // a repeated event is written at most this often
constexpr std::chrono::seconds kDrainTime{2};
constexpr const char* kController = "lockstep.dev/operator";

std::string SeriesKey(const Json& regarding, const EventNote& note) {
  return StringAt(regarding, {"uid"}) + "|" + note.reason + "|" + note.note;
}

}  // namespace

Json EventToJson(const Json& regarding, const EventNote& note, const std::string& instance, WallTime now) {
  const std::string name = StringAt(regarding, {"name"});
  // Events about cluster-scoped objects are stored in the namespace "default".
  return {{"metadata",
           {{"namespace", StringAt(regarding, {"namespace"}, "default")},
            {"name", name.substr(0, 200) + "." + RandomHex(8)}}},
          {"eventTime", FormatMicroTime(now)},
          {"reportingController", kController},
          {"reportingInstance", Truncate(instance, 128)},
          {"action", note.action},
          {"reason", note.reason},
          {"type", note.warning ? "Warning" : "Normal"},
          {"regarding", regarding},
          {"note", Truncate(note.note, kMaxNote)}};
}

EventRecorder::EventRecorder(KubeWriter& writer, const Clock& clock, std::string instance)
    : writer_(writer), clock_(clock), instance_(std::move(instance)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

EventRecorder::~EventRecorder() {
  {
    MutexLock lock(mutex_);
    wake_.wait_for(lock, kDrainTime, [this]() LOCKSTEP_REQUIRES(mutex_) { return queue_.empty(); });
  }
  thread_.request_stop();
}

void EventRecorder::Record(const Json& regarding, const EventNote& note) {
  bool dropped = false;
  {
    const MutexLock lock(mutex_);
    dropped = queue_.size() >= kMaxQueued;
    if (!dropped) queue_.push_back({regarding, note});
  }
  wake_.notify_all();
  if (dropped) log::Warning("event dropped, too many are waiting", {{"reason", note.reason}});
}

void EventRecorder::Run(const std::stop_token& stop) {
  while (true) {
    Pending pending;
    {
      MutexLock lock(mutex_);
      if (!wake_.wait(lock, stop, [this]() LOCKSTEP_REQUIRES(mutex_) { return !queue_.empty(); })) return;
      pending = queue_.front();
    }
    const auto sent = Guarded([&] { Send(pending); });
    if (!sent.ok()) log::Error("event not sent", {{"error", sent.error().message}});
    {
      // Only here, so that the destructor also waits for an event that is being sent.
      const MutexLock lock(mutex_);
      queue_.pop_front();
    }
    wake_.notify_all();
    if (stop.stop_requested()) return;
  }
}

void EventRecorder::Send(const Pending& pending) {
  const std::string key = SeriesKey(pending.regarding, pending.note);
  const auto known = series_.find(key);
  if (known == series_.end()) return SendFirst(pending, key);
  ++known->second.count;
  if (clock_.Steady() - known->second.written >= kSeriesPeriod) SendAgain(known->second);
}

void EventRecorder::SendFirst(const Pending& pending, const std::string& series_key) {
  const Json event = EventToJson(pending.regarding, pending.note, instance_, clock_.Now());
  const auto sent = writer_.Create(kEvents, event);
  if (!sent.ok()) {
    return log::Warning(
        "event not written",
        {{"reason", pending.note.reason}, {"note", pending.note.note}, {"error", sent.error().ToString()}});
  }
  if (series_.size() >= kMaxSeries) series_.clear();  // at worst an event is then recorded a second time
  series_[series_key] = {KeyOf(event), 1, clock_.Steady()};
}

void EventRecorder::SendAgain(Series& series) {
  series.written = clock_.Steady();
  const Json patch = {
      {"series", {{"count", series.count}, {"lastObservedTime", FormatMicroTime(clock_.Now())}}}};
  const auto sent = writer_.Patch(kEvents, series.key, patch, {});
  if (!sent.ok()) log::Debug("event series not written", {{"error", sent.error().ToString()}});
}

}  // namespace lockstep::kube
