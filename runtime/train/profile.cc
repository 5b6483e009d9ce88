#include "runtime/train/profile.h"

#include <stdlib.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <filesystem>
#include <set>

#include "runtime/checkpoint/object_store.h"
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

// The profiler writes files only.
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

// Opens the store anew: saves must not wait for a trace.
Result<std::string> Store(profiler::ProfilerResult& result, const std::string& uri, const std::string& name) {
  LOCKSTEP_TRY(const std::string trace, TraceOf(result));
  LOCKSTEP_TRY(const auto store, checkpoint::OpenObjectStore(uri));
  LOCKSTEP_TRY(store->Put(name, trace));
  return store->UriOf(name);
}

void StoreOrWarn(profiler::ProfilerResult& result, const std::string& uri, const std::string& name) {
  Result<std::string> stored = std::string();
  const Result<void> called =
      comm::CatchTorch(ErrorCode::kInternal, "writing the trace", [&] { stored = Store(result, uri, name); });
  if (called.ok() && stored.ok()) return log::Info("profile stored", {{"uri", *stored}});
  const Error& error = called.ok() ? stored.error() : called.error();
  log::Warning("profile not stored", {{"name", name}, {"error", error.message}});
}

}  // namespace

Profile::Profile(std::optional<ProfileWish> wish, bool is_on_gpu)
    : wish_(std::move(wish)), is_on_gpu_(is_on_gpu) {}

Profile::~Profile() = default;

void Profile::BeginStep(int64_t step, int rank) {
  if (!wish_.has_value() || is_done_) return;
  step_.reset();
  // Before the first one: the training went back to a checkpoint.
  const bool is_within = step >= wish_->window.first && step <= wish_->window.last;
  if (is_recording_ && !is_within) return Stop(rank);
  if (!is_recording_ && is_within) Start();
  if (!is_recording_) return;
  step_ = std::make_unique<TraceRange>("ProfilerStep#" + std::to_string(step));
}

void Profile::Finish(int rank) {
  step_.reset();
  if (is_recording_) Stop(rank);
  if (store_.joinable()) store_.join();
}

void Profile::Start() {
  const Result<void> started = comm::CatchTorch(ErrorCode::kInternal, "starting the profiler", [this] {
    const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
    profiler::prepareProfiler(config, Activities(is_on_gpu_));
    profiler::enableProfiler(config, Activities(is_on_gpu_));
  });
  is_recording_ = started.ok();
  is_done_ = !started.ok();
  if (!started.ok()) log::Warning("no profile", {{"error", started.error().message}});
}

void Profile::Stop(int rank) {
  is_recording_ = false;
  is_done_ = true;
  std::unique_ptr<profiler::ProfilerResult> result;
  const Result<void> stopped = comm::CatchTorch(ErrorCode::kInternal, "stopping the profiler",
                                                [&] { result = profiler::disableProfiler(); });
  if (!stopped.ok()) return log::Warning("no profile", {{"error", stopped.error().message}});
  store_ = std::jthread([result = std::move(result), uri = wish_->uri,
                         name = TraceName(wish_->window, rank)] { StoreOrWarn(*result, uri, name); });
}

}  // namespace lockstep::train
