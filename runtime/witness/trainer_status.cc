#include "runtime/witness/trainer_status.h"

#include <charconv>
#include <cmath>

#include "runtime/common/base/json.h"

namespace lockstep::witness {
namespace {

// More steps than any training takes, and exact as a double.
constexpr double kMostSteps = 1e12;

double NumberFrom(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number) ? number : 0;
}

void Take(const std::string& name, double value, TrainerStatus& status) {
  const auto steps = [value] { return value >= 0 && value <= kMostSteps ? static_cast<int64_t>(value) : 0; };
  if (name == "current_step") status.step = steps();
  if (name == "total_steps") status.total_steps = steps();
  if (name == "current_epoch") status.epoch = value;
  if (name == "loss") status.loss = value;
  if (name == "learning_rate") status.learning_rate = value;
  if (name == "grad_norm") status.gradient_norm = value;
}

}  // namespace

Result<TrainerStatus> ParseTrainerStatus(const std::string& body) {
  LOCKSTEP_TRY(const Json json, ParseJson(body));
  const auto trainer = json.find("trainerStatus");
  if (!json.is_object() || trainer == json.end() || !trainer->is_object())
    return Error{ErrorCode::kInvalidArgument, "trainerStatus: must be an object"};
  TrainerStatus status;
  const auto metrics = trainer->find("metrics");
  if (metrics == trainer->end() || !metrics->is_array()) return status;
  for (const Json& metric : *metrics)
    Take(StringAt(metric, {"name"}), NumberFrom(StringAt(metric, {"value"})), status);
  return status;
}

}  // namespace lockstep::witness
