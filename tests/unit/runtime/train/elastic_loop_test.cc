#include "runtime/train/elastic_loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/forked_ranks.h"

namespace lockstep::train {
namespace {

using checkpoint::Checkpointer;
using protocol::ExitCode;
using testing::ForkedProcess;
using testing::kPatience;
using testing::LineChannel;

api::TrainingSpec Training(int64_t steps) {
  api::TrainingSpec spec;
  spec.model.mlp.hidden_sizes = {8};
  spec.data.synthetic = {.samples = 20, .test_samples = 10, .shape = {1, 8, 8}, .classes = 3};
  spec.global_batch_size = 10;
  spec.steps = steps;
  return spec;
}

TrainingState NewState(const api::TrainingSpec& spec) {
  return std::move(MakeTrainingState(spec, {spec.data.synthetic.shape, 3})).value();
}

// The process of a rank, whose supervisor is the test.
LoopOutcome RunLoop(const api::TrainingSpec& spec, TrainingState& state, Checkpointer* checkpointer,
                    const LineChannel& supervisor) {
  const SystemClock clock;
  RoundControl control(clock);
  protocol::ControlLink link{Fd(::dup(supervisor.fd()))};
  link.Start({.on_message = [&](const protocol::ToRank& message) { control.OnMessage(message); },
              .on_end = [] { ::_exit(2); }});
  const data::Datasets datasets = std::move(data::OpenDatasets(spec)).value();
  const data::TrainingSamples samples = std::move(data::TrainingSamples::Make(spec, *datasets.train)).value();
  return RunElasticLoop({.training = spec,
                         .checkpoint = {},
                         .listen_address = "127.0.0.1",
                         .ledger_folder = "",
                         .process_name = "test",
                         .samples = samples,
                         .test = *datasets.test,
                         .state = state,
                         .device = {},
                         .checkpointer = checkpointer,
                         .store_patience = Seconds(1),
                         .link = link,
                         .control = control,
                         .clock = clock});
}

// The next message of that type.
template <typename Message>
std::optional<Message> Await(ForkedProcess& rank) {
  while (const auto line = rank.channel().Receive(kPatience)) {
    const auto message = protocol::DecodeFromRank(*line);
    if (!message.ok()) return std::nullopt;
    if (const auto* wanted = std::get_if<Message>(&*message)) return *wanted;
  }
  return std::nullopt;
}

void Assign(ForkedProcess& rank, int64_t round, const protocol::Ready& ready) {
  rank.channel().Send(protocol::Encode(protocol::ToRank(protocol::RankAssignment{
      .round = round, .address = "127.0.0.1", .store_host = "127.0.0.1", .store_port = ready.store_port})));
}

// A newcomer whose source died half-way, and nothing is stored.
TEST(ElasticLoop, BeginsWithAStateAsItWasMadeWhereItsOwnIsTorn) {
  ForkedProcess rank([&](LineChannel& supervisor) {
    const api::TrainingSpec spec = Training(0);  // all that is to do is to begin
    TrainingState state = NewState(spec);
    state.Tear();
    const at::NoGradGuard no_grad;
    state.parameters.back().tensor.fill_(8);
    const LoopOutcome outcome = RunLoop(spec, state, nullptr, supervisor);
    REQUIRE(outcome.code == ExitCode::kCompleted);
    REQUIRE(state.step == 0 && !state.is_torn);
    REQUIRE(state.Digest() == NewState(spec).Digest());
    return 0;
  });
  const auto ready = Await<protocol::Ready>(rank);
  ASSERT_TRUE(ready.has_value());
  Assign(rank, 2, *ready);
  EXPECT_TRUE(Await<protocol::Finished>(rank).has_value());
  EXPECT_EQ(rank.Wait(kPatience), 0);
}

}  // namespace
}  // namespace lockstep::train
