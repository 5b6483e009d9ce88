#pragma once
// A whole small world around the reconciler: an API server in memory, a kubelet and a user who do random
// things, caches that may lag, writes that may fail or lose their answer, an operator that may be restarted
// between any two of them.

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "operator/reconcile/job_reconciler.h"
#include "tests/support/creating_writer.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_kube.h"

namespace lockstep::testing {

class WorldModel {
 public:
  WorldModel(int32_t replicas, int32_t max_replicas, int32_t max_restarts, int32_t standbys = 0);
  ~WorldModel();

  // The operator.
  void Reconcile();        // one pass on whatever the caches hold
  void SyncCaches();       // the informers catch up
  void SyncPods();         // only one of them does
  void RestartOperator();  // empty memory, fresh lists
  void FailNextWrite(ErrorCode code) { next_fault_ = code; }
  void LoseNextAnswer() { lose_next_ = true; }

  // The kubelets and the user. Each does nothing where it does not apply.
  void AddNodes(int count);
  void LoseNode(std::size_t index);  // it does not answer any more; never the first, so that there is a place
  void HealNode(std::size_t index);
  void StartPods();
  void FailPod(std::size_t index, int exit_code);
  void SucceedPod(std::size_t index);
  void FinishDeletions();
  void DeletePod(std::size_t index);
  void Scale(int32_t replicas);
  void Suspend(bool suspend);
  void PatchSpec(const Json& patch);
  void PretendToHaveTrained();  // status.rendezvous has a round
  void DeleteJob();
  void Advance(std::chrono::seconds time) { clock_.Advance(time); }

  // Everything goes well from now on, until a pass changes nothing. False where that does not happen.
  [[nodiscard]] bool Settle();

  [[nodiscard]] std::vector<Json> pods() const { return kube_.all(kube::kPods); }
  [[nodiscard]] std::vector<std::string> lost_nodes() const;
  [[nodiscard]] Json job() const;  // null: gone
  [[nodiscard]] std::string state() const { return StringAt(job(), {"status", "state"}); }
  [[nodiscard]] int64_t attempt() const { return IntAt(job(), {"status", "attempt"}); }
  [[nodiscard]] std::size_t writes() const { return kube_.writes().size(); }

 private:
  class NoObserver final : public reconcile::JobObserver {
    void OnJob(const api::TrainingJob&, const api::TrainingJobStatus&, const reconcile::GpuCount&,
               const rendezvous::RendezvousView&) override {}
    void OnJobGone(const protocol::JobIdentity&) override {}
  };
  class NoEvents final : public CreatingWriter {
    Result<Json> Create(const kube::Resource&, const Json& object) override { return object; }
  };
  struct Operator;

  template <typename Write>
  void Undisturbed(Write write);  // faults are for the operator's writes
  void Remove(const Json& pod);
  void PatchPod(const Json& pod, const Json& patch);
  void TellOfNode(std::size_t index, const std::string& ready);
  [[nodiscard]] bool IsOnLostNode(const Json& pod);
  std::optional<Json> PodAt(std::size_t index, const std::string& phase);

  FakeClock clock_;
  FakeKube kube_;
  NoEvents no_events_;
  NoObserver observer_;
  kube::EventRecorder events_{no_events_, clock_, "test"};
  std::mutex
      faults_mutex_;  // the operator writes from several threads; the world is described by one, while it is idle
  std::optional<ErrorCode> next_fault_;
  bool lose_next_ = false;
  std::unique_ptr<Operator> operator_;
};

}  // namespace lockstep::testing
