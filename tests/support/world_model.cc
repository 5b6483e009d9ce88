#include "tests/support/world_model.h"

#include <algorithm>
#include <utility>

#include "operator/reconcile/owned_objects.h"
#include "runtime/common/base/log.h"

namespace lockstep::testing {
namespace {

using kube::kPods;
using reconcile::kJobs;

const kube::ObjectKey kJob{"team", "job"};
constexpr int kMaxPasses = 100;

Json JobManifest(int32_t replicas, int32_t max_replicas, int32_t max_restarts, int32_t standbys) {
  Json job = *ParseJson(R"({"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob",
    "metadata": {"name": "job", "namespace": "team", "generation": 1},
    "spec": {"worker": {"template": {"spec": {"containers": [{"name": "trainer", "image": "worker"}]}}},
      "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 64, "steps": 10}}})");
  job["spec"]["worker"]["replicas"] = replicas;
  job["spec"]["elasticPolicy"] = {{"minReplicas", 1}, {"maxReplicas", max_replicas}};
  job["spec"]["failurePolicy"]["maxRestarts"] = max_restarts;
  job["spec"]["standbyReplicas"] = standbys;
  return job;
}

void Fill(kube::Store& store, FakeKube& kube, const kube::Resource& resource) {
  const kube::ListPage page = *kube.List(resource, {}, {});
  store.ReplaceAll(page.items, page.resource_version);
}

}  // namespace

struct WorldModel::Operator {
  explicit Operator(WorldModel& world)
      : rendezvous(
            world.clock_, [](const auto&, auto done) { done({}); }, [](const protocol::JobIdentity&) {}),
        reconciler({world.kube_, caches, rendezvous, world.events_, world.observer_, world.clock_},
                   [] { return reconcile::ClusterSettings{.rendezvous_url = "http://rendezvous"}; }) {}
  reconcile::Caches caches;
  rendezvous::RendezvousService rendezvous;
  reconcile::JobReconciler reconciler;
};

WorldModel::WorldModel(int32_t replicas, int32_t max_replicas, int32_t max_restarts, int32_t standbys) {
  log::SetLevel(log::Level::kError);
  LOCKSTEP_CHECK(kube_.Create(kJobs, JobManifest(replicas, max_replicas, max_restarts, standbys)).ok());
  kube_.fault = [this](const auto&, const auto&, const auto&) -> std::optional<Error> {
    const std::lock_guard lock(faults_mutex_);
    if (!next_fault_) return std::nullopt;
    return Error{*std::exchange(next_fault_, std::nullopt), "injected"};
  };
  kube_.lose_answer = [this](const auto&, const auto&, const auto&) {
    const std::lock_guard lock(faults_mutex_);
    return std::exchange(lose_next_, false);
  };
  RestartOperator();
}

WorldModel::~WorldModel() = default;

void WorldModel::Reconcile() { (void)operator_->reconciler.Reconcile(kJob.ToString()); }

void WorldModel::SyncCaches() {
  Fill(operator_->caches.jobs, kube_, kJobs);
  for (const kube::Resource& resource : reconcile::kOwnedKinds) {
    Fill(operator_->caches.owned.at(reconcile::KeyOfKind(resource)), kube_, resource);
  }
  Fill(operator_->caches.nodes, kube_, kube::kNodes);
  SyncPods();
}

void WorldModel::SyncPods() {
  Fill(operator_->caches.pods, kube_, kPods);
  Fill(operator_->caches.removals, kube_, kPods);
}

void WorldModel::RestartOperator() {
  operator_ = std::make_unique<Operator>(*this);
  SyncCaches();
}

template <typename Write>
void WorldModel::Undisturbed(Write write) {
  const auto fault = std::exchange(next_fault_, std::nullopt);
  const bool lose = std::exchange(lose_next_, false);
  LOCKSTEP_CHECK(write().ok());
  next_fault_ = fault;
  lose_next_ = lose;
}

void WorldModel::PatchPod(const Json& pod, const Json& patch) {
  Undisturbed([&] { return kube_.Patch(kPods, kube::KeyOf(pod), patch, {}); });
}

void WorldModel::PatchSpec(const Json& patch) {
  if (job().is_null()) return;
  const Json both = {{"metadata", {{"generation", IntAt(job(), {"metadata", "generation"}) + 1}}},
                     {"spec", patch}};
  Undisturbed([&] { return kube_.Patch(kJobs, kJob, both, {}); });
}

void WorldModel::Remove(const Json& pod) {
  Undisturbed([&] { return kube_.Delete(kPods, kube::KeyOf(pod), {.grace_seconds = 0}); });
}

void WorldModel::AddNodes(int count) {
  for (int i = 0; i < count; ++i) {
    const Json node = {{"metadata", {{"name", "n" + std::to_string(i)}}}};
    Undisturbed([&] { return kube_.Create(kube::kNodes, node); });
  }
}

void WorldModel::TellOfNode(std::size_t index, const std::string& ready) {
  const std::vector<Json> nodes = kube_.all(kube::kNodes);
  const Json conditions = Json::array({{{"type", "Ready"}, {"status", ready}}});
  Undisturbed([&] {
    return kube_.Patch(kube::kNodes, kube::KeyOf(nodes.at(1 + index % (nodes.size() - 1))),
                       {{"status", {{"conditions", conditions}}}}, {});
  });
}

void WorldModel::LoseNode(std::size_t index) { TellOfNode(index, "Unknown"); }
void WorldModel::HealNode(std::size_t index) { TellOfNode(index, "True"); }

std::vector<std::string> WorldModel::lost_nodes() const {
  std::vector<std::string> names;
  for (const Json& node : kube_.all(kube::kNodes)) {
    if (IsLost(reconcile::NodeFromJson(node))) names.push_back(kube::KeyOf(node).name);
  }
  return names;
}

bool WorldModel::IsOnLostNode(const Json& pod) {
  const std::vector<std::string> lost = lost_nodes();
  return std::find(lost.begin(), lost.end(), StringAt(pod, {"spec", "nodeName"})) != lost.end();
}

// Each on the next node that answers.
void WorldModel::StartPods() {
  std::vector<std::string> places;
  for (const Json& node : kube_.all(kube::kNodes)) {
    if (!IsLost(reconcile::NodeFromJson(node))) places.push_back(kube::KeyOf(node).name);
  }
  if (places.empty()) places = {"n"};
  std::size_t next = 0;
  for (const Json& pod : pods()) {
    const std::string& node = places[next++ % places.size()];
    if (StringAt(pod, {"status", "phase"}).empty())
      PatchPod(pod, {{"spec", {{"nodeName", node}}}, {"status", {{"phase", "Running"}}}});
  }
}

std::optional<Json> WorldModel::PodAt(std::size_t index, const std::string& phase) {
  const std::vector<Json> all = pods();
  if (all.empty()) return std::nullopt;
  const Json& pod = all[index % all.size()];
  if (StringAt(pod, {"status", "phase"}) != phase || IsOnLostNode(pod)) return std::nullopt;
  return pod;
}

void WorldModel::FailPod(std::size_t index, int exit_code) {
  const auto pod = PodAt(index, "Running");
  if (!pod) return;
  const Json ended = {{"name", "trainer"}, {"state", {{"terminated", {{"exitCode", exit_code}}}}}};
  PatchPod(*pod, {{"status", {{"phase", "Failed"}, {"containerStatuses", Json::array({ended})}}}});
}

void WorldModel::SucceedPod(std::size_t index) {
  const auto pod = PodAt(index, "Running");
  if (pod) PatchPod(*pod, {{"status", {{"phase", "Succeeded"}}}});
}

void WorldModel::FinishDeletions() {
  for (const Json& pod : pods()) {
    if (pod["metadata"].contains("deletionTimestamp") && !IsOnLostNode(pod)) Remove(pod);
  }
}

void WorldModel::DeletePod(std::size_t index) {
  const std::vector<Json> all = pods();
  if (!all.empty()) Remove(all[index % all.size()]);
}

void WorldModel::Scale(int32_t replicas) { PatchSpec({{"worker", {{"replicas", replicas}}}}); }
void WorldModel::Suspend(bool suspend) { PatchSpec({{"suspend", suspend}}); }
void WorldModel::PretendToHaveTrained() {
  if (job().is_null()) return;
  const Json status = {{"status", {{"rendezvous", {{"round", 1}}}}}};
  Undisturbed([&] { return kube_.Patch(kJobs, kJob, status, {}); });
}
void WorldModel::DeleteJob() {
  if (!job().is_null()) Undisturbed([&] { return kube_.Delete(kJobs, kJob, {}); });
}

bool WorldModel::Settle() {
  next_fault_.reset();
  lose_next_ = false;
  int quiet = 0;  // an operator that has just begun waits in its first pass for pods to be heard
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    const std::size_t before = writes();
    SyncCaches();
    Reconcile();
    StartPods();
    FinishDeletions();
    Advance(std::chrono::seconds(15));
    quiet = writes() == before ? quiet + 1 : 0;
    if (quiet == 2) return true;
  }
  return false;
}

Json WorldModel::job() const {
  const std::vector<Json> jobs = kube_.all(kJobs);
  return jobs.empty() ? Json() : jobs.front();
}

}  // namespace lockstep::testing
