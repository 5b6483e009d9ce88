#pragma once
// Trainings of one rank on several devices, compared with those on one.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {

constexpr double kRounding = 1e-5;  // of gradients and weights, through all steps

inline std::vector<at::Device> Cpus(int count) {
  return std::vector<at::Device>(static_cast<std::size_t>(count), at::kCPU);
}

// In host memory.
inline std::vector<at::Tensor> GradientsOf(const ReplicatedModel& state) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : state.trained()) gradients.push_back(parameter.grad().cpu().clone());
  return gradients;
}

inline double WorstError(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor expectation = expected[i].cpu();
    const double error = (found[i].cpu() - expectation).norm().item<double>();
    worst = std::max(worst, error / expectation.norm().item<double>());
  }
  return worst;
}

// The largest error between two ways to train, of the mean gradient of each step and of the final weights.
inline double WorstError(Trainer& first, Trainer& second, comm::Communicator& communicator,
                         parallel::Strategy& of_first, parallel::Strategy& of_second, int64_t steps) {
  double worst = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    const Result<void> by_first = first.RunRoundWith(of_first, communicator, step);
    const Result<void> by_second = second.RunRoundWith(of_second, communicator, step);
    LOCKSTEP_CHECK(by_first.ok(), by_first.error().message.c_str());
    LOCKSTEP_CHECK(by_second.ok(), by_second.error().message.c_str());
    worst = std::max(worst, WorstError(GradientsOf(first.replicated()), GradientsOf(second.replicated())));
  }
  return std::max(worst, WorstError(first.replicated().trained(), second.replicated().trained()));
}

// Runs in a separate process with one thread per operation, as the ranks of other tests do.
inline void Alone(const std::function<int(const std::shared_ptr<comm::Communicator>&)>& body) {
  testing::RoundConnector connector;
  auto ranks = testing::StartRanks(1, [&](int, testing::LineChannel&) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    return body(*communicator);
  });
  testing::ExpectAllSucceed(ranks);
}

inline std::string BitsOf(const api::TrainingSpec& spec, const std::vector<at::Device>& devices,
                          const std::shared_ptr<comm::Communicator>& communicator) {
  Trainer trainer(spec, {.devices = devices});
  LOCKSTEP_CHECK(trainer.RunRound(communicator, Trainer::kTotalSteps).ok());
  return trainer.Bits();
}

}  // namespace lockstep::train
