// The loss of our own kernels, compared with LibTorch's in float64.

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "tests/gpu/with_a_device.h"

namespace lockstep::cuda {
namespace {

using comm::DeviceBackend;
using testing::OnTheGpu;

at::Tensor CrossEntropySum(const at::Tensor& outputs, const at::Tensor& targets) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("lockstep::cross_entropy_sum", "")
      .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>()
      .call(outputs, targets);
}

bool AreClose(const at::Tensor& found, const at::Tensor& expected, double relative, const char* what) {
  const double error = ((found.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
  if (error < relative) return true;
  std::fprintf(stderr, "%s: relative error %g, at most %g\n", what, error, relative);
  return false;
}

// `spread` 20: most of the probability is in one class.
int ExpectTheSame(at::Device gpu, at::ScalarType format, int64_t classes, double spread, double rounding) {
  constexpr int64_t kRows = 37;
  constexpr double kScale = 0.25;
  const at::Tensor outputs =
      (at::randn({kRows, classes}, at::TensorOptions(gpu)) * spread).to(format).requires_grad_();
  const at::Tensor targets = at::randint(classes, {kRows}, at::TensorOptions(gpu).dtype(at::kLong));
  targets[0] = 0;
  targets[1] = classes - 1;
  targets.narrow(0, 2, kRows / 2).copy_(outputs.narrow(0, 2, kRows / 2).argmax(1));  // well predicted
  const at::Tensor expected_outputs = outputs.detach().to(at::kDouble).requires_grad_();
  const at::Tensor expected = at::cross_entropy_loss(expected_outputs, targets, {}, at::Reduction::Sum);
  (expected * kScale).backward();
  const at::Tensor found = CrossEntropySum(outputs, targets);
  (found * kScale).backward();
  REQUIRE(outputs.grad().scalar_type() == format);
  REQUIRE(AreClose(found, expected.detach(), 1e-6, "loss"));
  REQUIRE(AreClose(outputs.grad(), expected_outputs.grad(), rounding, "gradient"));
  const at::Tensor chosen = targets.unsqueeze(1);
  REQUIRE(AreClose(outputs.grad().gather(1, chosen), expected_outputs.grad().gather(1, chosen), rounding,
                   "gradient of the targets"));
  return 0;
}

TEST(CrossEntropy, IsThatOfLibTorch) {
  OnTheGpu(1, [](DeviceBackend& gpu, int) {
    at::manual_seed(1);
    for (const int64_t classes : {3, 256, 50'257, 50'304}) {
      for (const double spread : {1.0, 20.0}) {
        REQUIRE(ExpectTheSame(gpu.device(), at::kFloat, classes, spread, 1e-5) == 0);
        REQUIRE(ExpectTheSame(gpu.device(), at::kBFloat16, classes, spread, 4e-3) == 0);
        REQUIRE(ExpectTheSame(gpu.device(), at::kHalf, classes, spread, 1e-3) == 0);
      }
    }
    return 0;
  });
}

TEST(CrossEntropy, IsNotANumberWhereAnOutputIsNone) {
  OnTheGpu(1, [](DeviceBackend& gpu, int) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      for (const int64_t place : {0, 700, 999}) {
        at::Tensor outputs = at::randn({2, 1000}, at::TensorOptions(gpu.device()).dtype(at::kFloat));
        outputs[1][place] = bad;
        const at::Tensor sum = CrossEntropySum(
            outputs.to(at::kBFloat16), at::ones({2}, at::TensorOptions(gpu.device()).dtype(at::kLong)));
        REQUIRE(!std::isfinite(sum.item<float>()));
      }
    }
    return 0;
  });
}

TEST(CrossEntropy, IsNotANumberWhereATargetIsNoClass) {
  OnTheGpu(1, [](DeviceBackend& gpu, int) {
    const at::Tensor outputs = at::zeros({1, 1000}, at::TensorOptions(gpu.device()).dtype(at::kFloat));
    for (const int64_t no_class : {-100, 1000}) {
      const at::Tensor target = at::full({1}, no_class, at::TensorOptions(gpu.device()).dtype(at::kLong));
      REQUIRE(std::isnan(CrossEntropySum(outputs, target).item<float>()));
    }
    return 0;
  });
}

// Masked outputs.
TEST(CrossEntropy, TakesOutputsOfMinusInfinity) {
  OnTheGpu(1, [](DeviceBackend& gpu, int) {
    at::Tensor outputs = at::zeros({1, 1000}, at::TensorOptions(gpu.device()).dtype(at::kFloat));
    outputs.narrow(1, 10, 990).fill_(-std::numeric_limits<float>::infinity());
    const at::Tensor target = at::zeros({1}, at::TensorOptions(gpu.device()).dtype(at::kLong));
    REQUIRE(std::abs(CrossEntropySum(outputs, target).item<float>() - std::log(10.0F)) < 1e-6F);
    return 0;
  });
}

}  // namespace
}  // namespace lockstep::cuda
