#include "runtime/train/step/not_finite.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "runtime/common/base/strings.h"

namespace lockstep::train {

void LookForNotFinite(const at::Tensor& loss, const std::vector<at::Tensor>& parameters, NotFinite& found) {
  found.loss = found.loss || !std::isfinite(loss.item<double>());
  const std::vector<at::Tensor> gradients =
      torch::autograd::grad({loss}, parameters, {}, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                            /*allow_unused=*/true);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined() && !std::isfinite(gradients[i].norm().item<double>()))
      found.parameter = std::max(found.parameter, static_cast<int64_t>(i));
  }
}

std::string Describe(const std::vector<NotFinite>& of_ranks,
                     const std::vector<std::string>& parameter_names) {
  std::vector<std::string> ranks;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const NotFinite& found = of_ranks[rank];
    if (!found.any()) continue;
    std::vector<std::string> what;
    if (found.loss) what.emplace_back("loss");
    if (found.parameter >= 0)
      what.push_back("gradient of " + parameter_names.at(static_cast<std::size_t>(found.parameter)));
    ranks.push_back("rank " + std::to_string(rank) + ": " + Join(what, ", "));
  }
  return ranks.empty() ? "no rank's own loss or gradient, only their sum" : Join(ranks, "; ");
}

}  // namespace lockstep::train
