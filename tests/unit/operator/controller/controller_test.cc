#include "operator/controller/controller.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/eventually.h"

namespace lockstep::controller {
namespace {

class ScriptedReconciler final : public Reconciler {
 public:
  std::function<Result<Outcome>(const std::string&, int)> script;
  Result<Outcome> Reconcile(const std::string& key) override {
    int run = 0;
    {
      const std::lock_guard lock(mutex_);
      run = ++runs_[key];
    }
    return script(key, run);
  }
  Priority PriorityOf(const std::string& key) const override {
    return key.starts_with("low") ? Priority::kLow : Priority::kNormal;
  }
  int runs(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return runs_[key];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> runs_;
};

class Counts final : public ControllerObserver {
 public:
  void OnAdded() override { ++added; }
  void OnRetry() override { ++retries; }
  void OnStarted(std::chrono::duration<double>) override {}
  void OnFinished(ReconcileResult result, std::chrono::duration<double>) override {
    ++results[static_cast<std::size_t>(result)];
  }
  std::atomic<int> added = 0;
  std::atomic<int> retries = 0;
  std::array<std::atomic<int>, 3> results{};
};

TEST(Controller, RetriesErrorsAndComesBackWhenAsked) {
  const SystemClock clock;
  ScriptedReconciler reconciler;
  reconciler.script = [](const std::string& key, int run) -> Result<Outcome> {
    if (key == "bad" && run < 3) return Error{ErrorCode::kUnavailable, "away"};
    if (key == "again" && run < 4) return Outcome{.requeue_after = std::chrono::milliseconds(1)};
    return Outcome{};
  };
  Counts counts;
  {
    Controller controller(clock, reconciler, counts);
    controller.Enqueue("bad");
    controller.Enqueue("again");
    controller.Start(3);
    EXPECT_TRUE(
        testing::Eventually([&] { return reconciler.runs("bad") == 3 && reconciler.runs("again") == 4; }));
  }
  EXPECT_EQ(counts.added, 2);
  EXPECT_EQ(counts.retries, 2);
  EXPECT_EQ(counts.results[static_cast<std::size_t>(ReconcileResult::kError)], 2);
  EXPECT_EQ(counts.results[static_cast<std::size_t>(ReconcileResult::kRequeueAfter)], 3);
  EXPECT_EQ(counts.results[static_cast<std::size_t>(ReconcileResult::kSuccess)], 2);
}

TEST(Controller, AnExceptionEndsOnePassAndIsTriedAgain) {
  const SystemClock clock;
  ScriptedReconciler reconciler;
  reconciler.script = [](const std::string& key, int run) -> Result<Outcome> {
    if (key == "throws" && run < 3) throw std::runtime_error("thrown");
    return Outcome{};
  };
  Counts counts;
  {
    Controller controller(clock, reconciler, counts);
    controller.Start(1);
    controller.Enqueue("throws");
    controller.Enqueue("good");
    EXPECT_TRUE(
        testing::Eventually([&] { return reconciler.runs("throws") == 3 && reconciler.runs("good") == 1; }));
  }
  EXPECT_EQ(counts.results[static_cast<std::size_t>(ReconcileResult::kError)], 2);
}

TEST(Controller, TakesKeysByTheirPriority) {
  const SystemClock clock;
  ScriptedReconciler reconciler;
  std::vector<std::string> order;  // one worker
  reconciler.script = [&](const std::string& key, int) -> Result<Outcome> {
    order.push_back(key);
    return Outcome{};
  };
  Counts counts;
  {
    Controller controller(clock, reconciler, counts);
    for (const char* key : {"low 1", "low 2", "a", "b"}) controller.Enqueue(key);
    controller.Start(1);
    EXPECT_TRUE(testing::Eventually([&] { return reconciler.runs("low 2") == 1; }));
  }
  EXPECT_EQ(order, (std::vector<std::string>{"a", "b", "low 1", "low 2"}));
}

TEST(Controller, BatchesChangesThatComeTogether) {
  const SystemClock clock;
  ScriptedReconciler reconciler;
  reconciler.script = [](const std::string&, int) -> Result<Outcome> { return Outcome{}; };
  Counts counts;
  {
    Controller controller(clock, reconciler, counts);
    controller.Start(2);
    for (int change = 0; change < 100; ++change) controller.EnqueueSoon("many");
    EXPECT_TRUE(testing::Eventually([&] { return reconciler.runs("many") > 0; }));
  }
  EXPECT_LT(reconciler.runs("many"), 5);
}

}  // namespace
}  // namespace lockstep::controller
