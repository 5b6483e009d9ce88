#include "runtime/comm/open_work.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAtOnce{0};
constexpr std::chrono::hours kForEver{1};

class Collective final : public c10d::Work {
 public:
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future; }
  c10::intrusive_ptr<c10::ivalue::Future> future =
      c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
};

// Completes when it is aborted.
class Message final : public c10d::Work {
 public:
  bool wait(milliseconds) override {
    waits.set_value();
    ended_.get_future().wait();
    return false;
  }
  void abort() override { ended_.set_value(); }
  std::promise<void> waits;

 private:
  std::promise<void> ended_;
};

TEST(OpenWork, ACollectiveThatEndsEndsItsFuture) {
  OpenWork open;
  Collective good;
  Collective bad;
  const auto value = open.FutureOf(good);
  const auto error = open.FutureOf(bad);
  EXPECT_FALSE(value->completed());
  good.future->markCompleted(7);
  bad.future->setError(std::make_exception_ptr(std::runtime_error("connection reset")));
  EXPECT_EQ(value->value().toInt(), 7);
  EXPECT_TRUE(error->hasError());
  open.End(kForEver);
  EXPECT_FALSE(open.gave_up());
}

TEST(OpenWork, ACollectiveThatDoesNotEndIsGivenUp) {
  OpenWork open;
  Collective early;
  Collective late;
  const auto future = open.FutureOf(early);
  open.End(kAtOnce);
  EXPECT_THROW(future->waitAndThrow(), std::runtime_error);
  EXPECT_TRUE(open.gave_up());
  EXPECT_TRUE(open.FutureOf(late)->hasError());
  early.future->markCompleted(7);  // far too late
  EXPECT_TRUE(future->hasError());
}

TEST(OpenWork, OneThatEndsAfterTheAbortIsWaitedFor) {
  OpenWork open;
  Collective work;
  const auto future = open.FutureOf(work);
  const auto end = std::async(std::launch::async, [&] { open.End(kForEver); });
  work.future->markCompleted(7);
  end.wait();
  EXPECT_EQ(future->value().toInt(), 7);
}

TEST(OpenWork, AMessageIsAborted) {
  OpenWork open;
  const auto message = c10::make_intrusive<Message>();
  auto outcome = std::async(std::launch::async, [&] { return open.Await(message, kForEver); });
  message->waits.get_future().wait();
  open.End(kAtOnce);
  EXPECT_EQ(outcome.get().error().code, ErrorCode::kAborted);
  const auto late = c10::make_intrusive<Message>();
  EXPECT_EQ(open.Await(late, kForEver).error().code, ErrorCode::kAborted);
}

}  // namespace
}  // namespace lockstep::comm
