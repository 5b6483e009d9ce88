#include "runtime/train/state/step_facts.h"

#include <cmath>

namespace lockstep::train {

StepVerdict VerdictOf(const StepEnd& end, double loss_scale) {
  StepVerdict verdict{.gradient_norm = std::sqrt(end.squares) / (end.count * loss_scale)};
  verdict.applied = std::isfinite(verdict.gradient_norm) && std::isfinite(end.loss);
  return verdict;
}

void Numbers::Put(const Version& version) {
  Put(version.step);
  Put(version.round);
}

void Numbers::Put(const StepFacts& facts) {
  Put(facts.version);
  Put(facts.evaluations.step);
  Put(facts.evaluations.newest);
  Put(facts.evaluations.best);
  Put(int64_t{facts.evaluations.without_improvement});
  Put(facts.loss_scale);
  Put(facts.good_steps);
  for (const double sum : {facts.end.count, facts.end.loss, facts.end.squares}) Put(sum);
}

Version Numbers::TakeVersion() {
  const int64_t step = Take();
  return {step, Take()};
}

StepFacts Numbers::TakeFacts() {
  StepFacts facts;
  facts.version = TakeVersion();
  facts.evaluations.step = Take();
  facts.evaluations.newest = TakeReal();
  facts.evaluations.best = TakeReal();
  facts.evaluations.without_improvement = Take();
  facts.loss_scale = TakeReal();
  facts.good_steps = Take();
  for (double* sum : {&facts.end.count, &facts.end.loss, &facts.end.squares}) *sum = TakeReal();
  return facts;
}

}  // namespace lockstep::train
