#include "runtime/train/records/profile.h"

#include <stdlib.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "runtime/checkpoint/open_store.h"
#include "runtime/comm/torch_error.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"

namespace lockstep::train {
namespace {

namespace profiler = torch::autograd::profiler;

std::set<profiler::ActivityType> Activities(bool is_on_gpu) {
  std::set<profiler::ActivityType> activities = {profiler::ActivityType::CPU};
  if (is_on_gpu) activities.insert(profiler::ActivityType::CUDA);
  return activities;
}

// The profiler can only write to files.
Result<std::string> TraceOf(profiler::ProfilerResult& result) {
  std::string folder = (std::filesystem::temp_directory_path() / "lockstep-profile-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return Error{ErrorCode::kUnavailable, folder + " cannot be made"};
  const std::string path = folder + "/trace.json";
  result.save(path);
  Result<std::string> trace = ReadFile(path);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return trace;
}

// Opens the store separately, so that saves do not wait for a trace.
Result<std::string> StoreProfile(profiler::ProfilerResult& result, const std::string& uri,
                                 const std::string& name) {
  LOCKSTEP_TRY(const std::string trace, TraceOf(result));
  LOCKSTEP_TRY(const auto store, checkpoint::OpenObjectStore(uri));
  LOCKSTEP_TRY(store->Put(name, trace));
  return store->UriOf(name);
}

void StoreOrWarn(profiler::ProfilerResult& result, const std::string& uri, const std::string& name) {
  const Result<std::string> stored = comm::CatchTorch(ErrorCode::kInternal, "writing the trace",
                                                      [&] { return StoreProfile(result, uri, name); });
  if (stored.ok()) return log::Info("profile stored", {{"uri", *stored}});
  log::Warning("profile not stored", {{"name", name}, {"error", stored.error().message}});
}

bool Holds(const api::ProfileWindow& window, int64_t step) {
  return step >= window.first && step <= window.last;
}

}  // namespace

Profile::Profile(ProfileSettings settings, bool is_on_gpu)
    : uri_(std::move(settings.uri)), is_on_gpu_(is_on_gpu), planned_(settings.planned) {}

Profile::~Profile() = default;

bool Profile::Ask(const api::ProfileWindow& window, int64_t next_step) {
  if (asked_ == window || window.last < next_step) return false;
  asked_ = window;
  return true;
}

void Profile::BeginStep(int64_t step, int rank) {
  step_.reset();
  // A step before the first recorded one means that training went back to a checkpoint.
  if (recording_.has_value() && !Holds(recording_->wanted, step)) Stop(rank);
  if (!recording_.has_value()) {
    const auto window = WindowOf(step);
    if (window.has_value()) Start(*window, step);
  }
  if (!recording_.has_value()) return;
  recording_->recorded.first = std::min(recording_->recorded.first, step);
  recording_->recorded.last = std::max(recording_->recorded.last, step);
  step_ = std::make_unique<TraceRange>("ProfilerStep#" + std::to_string(step));
}

void Profile::Finish(int rank) {
  step_.reset();
  if (recording_.has_value()) Stop(rank);
  if (store_.joinable()) store_.join();
}

std::optional<api::ProfileWindow> Profile::WindowOf(int64_t step) const {
  for (const auto& window : {planned_, asked_}) {
    if (window.has_value() && Holds(*window, step)) return window;
  }
  return std::nullopt;
}

void Profile::Start(const api::ProfileWindow& window, int64_t step) {
  const Result<void> started = comm::CatchTorch(ErrorCode::kInternal, "starting the profiler", [this] {
    const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
    profiler::prepareProfiler(config, Activities(is_on_gpu_));
    profiler::enableProfiler(config, Activities(is_on_gpu_));
  });
  if (started.ok()) {
    recording_ = {.wanted = window, .recorded = {step, step}};
    return;
  }
  Drop(window);
  log::Warning("no profile", {{"error", started.error().message}});
}

void Profile::Stop(int rank) {
  const Recording recording = std::exchange(recording_, std::nullopt).value_or(Recording{});
  Drop(recording.wanted);
  std::unique_ptr<profiler::ProfilerResult> result;
  const Result<void> stopped = comm::CatchTorch(ErrorCode::kInternal, "stopping the profiler",
                                                [&] { result = profiler::disableProfiler(); });
  if (!stopped.ok()) return log::Warning("no profile", {{"error", stopped.error().message}});
  store_ = std::jthread([before = std::move(store_), result = std::move(result), uri = uri_,
                         name = TraceName(recording.recorded, rank)]() mutable {
    if (before.joinable()) before.join();
    StoreOrWarn(*result, uri, name);
  });
}

void Profile::Drop(const api::ProfileWindow& window) {
  if (planned_ == window) planned_.reset();
  if (asked_ == window) asked_.reset();
}

}  // namespace lockstep::train
