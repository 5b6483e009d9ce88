#include "operator/reconcile/apply.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "operator/reconcile/owned_objects.h"
#include "operator/reconcile/owner.h"
#include "runtime/common/api/names.h"
#include "runtime/common/api/training_job_json.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::reconcile {
namespace {

// Concurrent requests of one stage. Measured with bare clients: more do not make the API server faster.
constexpr std::size_t kParallelWrites = 8;

// Pods are created in batches: first one, then twice as many each time, as Kubernetes' own controllers do. If
// the API server rejects them all, for example for lack of quota, that costs one request and not one per pod.
constexpr std::size_t kFirstBatch = 1;

// Calls `work` for each index from several threads, until one call fails. Rethrows the first exception.
template <typename Work>
void ForEachInParallel(std::size_t count, Work work) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  std::atomic<bool> has_thrown = false;
  std::exception_ptr thrown;
  const auto worker = [&] {
    try {
      for (std::size_t i = next++; i < count && !failed; i = next++) {
        if (!work(i)) failed = true;
      }
    } catch (...) {
      failed = true;
      if (!has_thrown.exchange(true)) thrown = std::current_exception();
    }
  };
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < std::min(count, kParallelWrites); ++i) helpers.emplace_back(worker);
  worker();
  helpers.clear();  // joins the threads
  if (thrown) std::rethrow_exception(thrown);
}

// True if the plan creates, charges or deletes pods and no other action of it verifies that the job is unchanged. A
// failure that is charged by an outdated status would get a number that was used before, and cost nothing.
bool NeedsConfirmation(const std::vector<PlannedAction>& actions) {
  const auto is_any = [&](auto matches) { return std::any_of(actions.begin(), actions.end(), matches); };
  return !is_any([](const auto& entry) { return std::holds_alternative<ClaimJob>(entry.action); }) &&
         is_any([](const auto& entry) {
           return std::holds_alternative<CreatePod>(entry.action) ||
                  std::holds_alternative<MarkPod>(entry.action) ||
                  std::holds_alternative<DeletePod>(entry.action) ||
                  std::holds_alternative<StartRemoval>(entry.action) ||
                  std::holds_alternative<EndRemoval>(entry.action);
         });
}

Error Foreign(const kube::Resource& resource, const kube::ObjectKey& key) {
  return {ErrorCode::kAlreadyExists,
          std::string(resource.kind) + " " + key.ToString() +
              " exists and does not belong to this job; delete or rename one of the two"};
}

// Adds the field of the job to correct if an object made from it is invalid.
Error WithField(const Error& error, const Action& action) {
  if (error.code != ErrorCode::kInvalidArgument) return error;
  if (std::holds_alternative<CreatePod>(action) || std::holds_alternative<StartRemoval>(action)) {
    return error.WithContext("spec.worker.template: the API server refuses the pod");
  }
  const auto* apply = std::get_if<ApplyObject>(&action);
  if (apply == nullptr) return error;
  const std::string field = apply->resource == kAutoscalers ? "spec.elasticPolicy.metrics" : "spec";
  return error.WithContext(field + ": the API server refuses the " + std::string(apply->resource.kind));
}

// True if the rejected write is for an object that the job asks for: its status must report that. Rejections
// of other writes, such as deletions, say nothing about the job, and a complete job stays complete.
bool IsRefusal(const Error& error, const Action& action) {
  if (!std::holds_alternative<ApplyObject>(action) && !std::holds_alternative<CreatePod>(action) &&
      !std::holds_alternative<StartRemoval>(action))
    return false;
  return error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kForbidden ||
         error.code == ErrorCode::kAlreadyExists;
}

}  // namespace

class Applier::Executor {
 public:
  Executor(Applier& applier, const Observed& observed)
      : client_(applier.client_),
        caches_(applier.caches_),
        job_(observed.job),
        installation_(observed.settings.installation) {}

  Result<void> operator()(const ClaimJob&) {
    std::vector<std::string> finalizers = job_.metadata.finalizers;
    if (!HasFinalizer(job_)) finalizers.emplace_back(api::kFinalizer);
    return PatchMetadata(
        {{"finalizers", finalizers}, {"annotations", {{api::kAnnotationInstallation, installation_}}}});
  }
  Result<void> operator()(const RemoveFinalizer&) {
    std::vector<std::string> finalizers = job_.metadata.finalizers;
    std::erase(finalizers, api::kFinalizer);
    return PatchMetadata({{"finalizers", finalizers}});
  }
  // An object that is not in the cache is created: one request, while reading and applying would be two.
  Result<void> operator()(const ApplyObject& action) {
    kube::Store& cache = caches_.owned.at(KeyOfKind(action.resource));
    if (cache.Get(kube::KeyOf(action.object)) == nullptr) {
      auto created = client_.Create(action.resource, action.object);
      if (created.ok()) return Learn(cache, std::move(created).value());
      if (created.error().code != ErrorCode::kAlreadyExists) return created.error();
    }
    return ApplyOwned(action.resource, action.object, cache);
  }
  Result<void> operator()(const DeleteObject& action) {
    const auto deleted = client_.Delete(action.resource, KeyIn(action.name), {.uid = action.uid});
    return deleted.ok() ? Result<void>() : IgnoreNotFound(deleted.error());
  }
  Result<void> operator()(const PatchStatus& action) {
    const Json patch = {{"metadata", {{"resourceVersion", action.resource_version}}},
                        {"status", action.status}};
    kube::PatchOptions options = Ours();
    options.subresource = "status";
    auto patched = client_.Patch(action.resource, KeyIn(action.name), patch, options);
    if (!patched.ok()) return IgnoreNotFound(patched.error());
    return Learn(caches_.owned.at(KeyOfKind(action.resource)), std::move(patched).value());
  }
  Result<void> operator()(const CreatePod& action) { return MakePod(action.object, caches_.pods); }
  Result<void> operator()(const StartRemoval& action) { return MakePod(action.pod, caches_.removals); }
  Result<void> operator()(const EndRemoval& action) {
    auto deleted = client_.Delete(kube::kPods, KeyIn(action.name), {.uid = action.uid});
    if (!deleted.ok()) return IgnoreNotFound(deleted.error());
    if (StringAt(*deleted, {"kind"}) == kube::kPods.kind) caches_.removals.Learn(std::move(deleted).value());
    return {};
  }
  Result<void> operator()(const MarkPod& action) {
    const Json patch = {{"metadata",
                         {{"resourceVersion", action.resource_version},
                          {"annotations", {{api::kAnnotationAttempt, std::to_string(action.attempt)}}}}}};
    LOCKSTEP_TRY(Json pod, client_.Patch(kube::kPods, KeyIn(action.name), patch, Ours()));
    return Learn(caches_.pods, std::move(pod));
  }
  Result<void> operator()(const DeletePod& action) {
    kube::DeleteOptions options{.uid = action.uid, .resource_version = action.resource_version};
    if (action.by_force) options.grace_seconds = 0;
    auto deleted = client_.Delete(kube::kPods, KeyIn(action.name), options);
    if (!deleted.ok()) return IgnoreNotFound(deleted.error());
    if (StringAt(*deleted, {"kind"}) == kube::kPods.kind) caches_.pods.Learn(std::move(deleted).value());
    return {};
  }
  Result<void> operator()(const DeleteJob& action) {
    const auto deleted = client_.Delete(kJobs, KeyIn(job_.metadata.name),
                                        {.uid = action.uid, .resource_version = action.resource_version});
    return deleted.ok() ? Result<void>() : IgnoreNotFound(deleted.error());
  }

  // The cache may be far behind, above all after a restart. Without this check an outdated spec could create
  // or end pods that a later pass reverts.
  Result<void> ConfirmJob() {
    auto job = client_.Get(kJobs, KeyIn(job_.metadata.name));
    if (!job.ok() && job.error().code != ErrorCode::kNotFound) return job.error();
    if (job.ok() && StringAt(*job, {"metadata", "resourceVersion"}) == job_.metadata.resource_version)
      return {};
    if (job.ok()) caches_.jobs.Learn(std::move(job).value());
    return Error{ErrorCode::kConflict, "the job has changed meanwhile"};
  }

 private:
  static Result<void> Learn(kube::Store& cache, Json object) {
    cache.Learn(std::move(object));
    return {};
  }
  // NotFound is success for a deletion. A conflict is not: the cache is behind, and a later pass decides
  // whether the object must still be deleted.
  static Result<void> IgnoreNotFound(const Error& error) {
    return error.code == ErrorCode::kNotFound ? Result<void>() : Result<void>(error);
  }
  static kube::PatchOptions Ours(kube::PatchKind kind = kube::PatchKind::kMerge) {
    return {.kind = kind, .field_manager = std::string(api::kFieldManager)};
  }
  [[nodiscard]] kube::ObjectKey KeyIn(const std::string& name) const {
    return {job_.metadata.namespace_name, name};
  }

  Result<void> MakePod(const Json& pod, kube::Store& cache) {
    auto created = client_.Create(kube::kPods, pod);
    if (!created.ok() && created.error().code == ErrorCode::kAlreadyExists) {
      // Either ours, from a pass that the cache does not contain yet, or a foreign object, which must not be
      // adopted.
      created = client_.Get(kube::kPods, kube::KeyOf(pod));
      if (!created.ok() && created.error().code == ErrorCode::kNotFound)
        return Error{ErrorCode::kConflict, "the pod went meanwhile"};
      if (created.ok() && JobOf(*created) != JobOf(pod)) return Foreign(kube::kPods, kube::KeyOf(pod));
    }
    if (!created.ok()) return created.error();
    return Learn(cache, std::move(created).value());
  }

  Result<void> PatchMetadata(Json metadata) {
    metadata["resourceVersion"] = job_.metadata.resource_version;
    const Json patch = {{"metadata", std::move(metadata)}};
    LOCKSTEP_TRY(Json job, client_.Patch(kJobs, KeyIn(job_.metadata.name), patch, Ours()));
    return Learn(caches_.jobs, std::move(job));
  }

  // Apply takes fields over by force, so verify first that the object belongs to the job.
  Result<void> ApplyOwned(const kube::Resource& resource, const Json& object, kube::Store& cache) {
    const kube::ObjectKey key = kube::KeyOf(object);
    const auto existing = client_.Get(resource, key);
    if (!existing.ok() && existing.error().code != ErrorCode::kNotFound) return existing.error();
    if (existing.ok() && JobOf(*existing) != IdentityOf(job_)) return Foreign(resource, key);
    LOCKSTEP_TRY(Json applied, client_.Patch(resource, key, object, Ours(kube::PatchKind::kApply)));
    return Learn(cache, std::move(applied));
  }

  kube::KubeClient& client_;
  Caches& caches_;
  const api::TrainingJob& job_;
  const std::string& installation_;
};

Applied Applier::Apply(const Observed& observed, const std::vector<PlannedAction>& actions) {
  Executor executor(*this, observed);
  if (NeedsConfirmation(actions)) {
    if (const auto confirmed = executor.ConfirmJob(); !confirmed.ok()) return {.error = confirmed.error()};
  }
  Mutex mutex;
  Applied applied;  // results of the actions of a stage; accessed with the mutex held
  for (std::size_t begin = 0; begin < actions.size() && !applied.error;) {
    std::size_t end = begin + 1;
    while (end < actions.size() && StageOf(actions[end].action) == StageOf(actions[begin].action)) ++end;
    const bool starts_slowly = std::holds_alternative<CreatePod>(actions[begin].action);
    std::size_t batch = starts_slowly ? kFirstBatch : end - begin;
    for (; begin < end && !applied.error; batch *= 2) {
      const std::size_t count = std::min(batch, end - begin);
      ForEachInParallel(count, [&](std::size_t i) {
        const Action& action = actions[begin + i].action;
        const auto done = std::visit(executor, action);
        if (done.ok()) return true;
        const MutexLock lock(mutex);
        if (!applied.error) applied = {WithField(done.error(), action), IsRefusal(done.error(), action)};
        return false;
      });
      begin += count;
    }
  }
  return applied;
}

Result<bool> Applier::WriteStatus(const Observed& observed, const api::TrainingJobStatus& status) {
  const Json patch = MergePatchBetween(api::TrainingJobStatusToJson(observed.job.status),
                                       api::TrainingJobStatusToJson(status));
  if (patch.empty()) return false;
  const kube::ObjectKey key{observed.job.metadata.namespace_name, observed.job.metadata.name};
  // Adding our finalizer may just have changed the version: use the newest one in the cache if its status is
  // the observed one.
  const kube::Object newest = caches_.jobs.Get(key);
  if (newest == nullptr || kube::UidOf(*newest) != observed.job.metadata.uid) return false;
  std::vector<std::string> ignored;
  const api::TrainingJob current = api::TrainingJobFromJson(*newest, ignored);
  if (!(current.status == observed.job.status))
    return Error{ErrorCode::kConflict, "the status changed meanwhile"};
  const Json body = {{"metadata", {{"resourceVersion", current.metadata.resource_version}}},
                     {"status", patch}};
  LOCKSTEP_TRY(Json written,
               client_.Patch(kJobs, key, body,
                             {.subresource = "status", .field_manager = std::string(api::kFieldManager)}));
  caches_.jobs.Learn(std::move(written));
  return true;
}

Json MergePatchBetween(const Json& before, const Json& after) {
  Json patch = Json::object();
  for (const auto& [key, value] : after.items()) {
    const auto old = before.find(key);
    if (old == before.end()) {
      patch[key] = value;
    } else if (old->is_object() && value.is_object()) {
      if (Json nested = MergePatchBetween(*old, value); !nested.empty()) patch[key] = std::move(nested);
    } else if (*old != value) {
      patch[key] = value;
    }
  }
  for (const auto& [key, value] : before.items()) {
    if (!after.contains(key)) patch[key] = nullptr;
  }
  return patch;
}

}  // namespace lockstep::reconcile
