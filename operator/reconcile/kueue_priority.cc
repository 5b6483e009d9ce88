#include "operator/reconcile/kueue_priority.h"

#include "operator/reconcile/kueue_workload.h"
#include "runtime/common/api/kueue.h"

namespace lockstep::reconcile {
namespace {

constexpr const char* kRef = "priorityClassRef";
constexpr const char* kPriority = "priority";

Json Fields(const kube::Resource& kind, const Json& priority_class) {
  return {{kRef,
           {{"group", kind.group},
            {"kind", kind.kind},
            {"name", StringAt(priority_class, {"metadata", "name"})}}},
          {kPriority, priority_class.value("value", int32_t{0})}};
}

Json FieldsOf(const Json& workload) {
  Json fields = Json::object();
  for (const char* key : {kRef, kPriority}) {
    if (const Json* found = FindJson(workload, {"spec", key})) fields[key] = *found;
  }
  return fields;
}

bool IsKueues(const Json& fields) {
  return StringAt(fields, {kRef, "kind"}) == kWorkloadPriorityClasses.kind;
}

// While quota is reserved, a WorkloadPriorityClass may only be replaced by another one.
bool MayBecome(const Json& before, const Json& after, bool is_reserved) {
  return is_reserved ? IsKueues(before) && IsKueues(after) : IsKueues(before) || IsKueues(after);
}

}  // namespace

std::string PodPriorityClassOf(const api::TrainingJobSpec& spec) {
  const std::string& asked = spec.scheduling_policy.priority_class_name;
  return asked.empty() ? StringAt(spec.worker.pod_template, {"spec", "priorityClassName"}) : asked;
}

std::optional<PriorityClassName> PriorityClassOf(const api::TrainingJob& job) {
  const auto label = job.metadata.labels.find(std::string(api::kLabelWorkloadPriorityClass));
  if (label != job.metadata.labels.end() && !label->second.empty())
    return PriorityClassName{kWorkloadPriorityClasses, label->second};
  std::string of_pods = PodPriorityClassOf(job.spec);
  if (of_pods.empty()) return std::nullopt;
  return PriorityClassName{kPriorityClasses, std::move(of_pods)};
}

std::string WhyNoPriority(const Observed& observed) {
  const auto named = PriorityClassOf(observed.job);
  if (!named || observed.priority_class) return "";
  const bool is_label = named->kind == kWorkloadPriorityClasses;
  return (is_label ? "metadata.labels[" + std::string(api::kLabelWorkloadPriorityClass) + "]"
                   : std::string("spec.schedulingPolicy.priorityClassName")) +
         ": there is no " + std::string(named->kind.kind) + " \"" + named->name +
         "\" that the operator may read; create it, or name another";
}

Json DesiredPriority(const Observed& observed, const Json* workload) {
  const auto named = PriorityClassOf(observed.job);
  Json desired = Json::object();
  if (observed.priority_class)
    desired = Fields(named ? named->kind : kPriorityClasses, *observed.priority_class);
  if (workload == nullptr) return desired;
  Json before = FieldsOf(*workload);
  const bool is_known = observed.priority_class.has_value() || !named;
  const bool is_other = before.value(kRef, Json()) != desired.value(kRef, Json());
  const bool may_change = is_known && is_other && MayBecome(before, desired, HoldsQuota(*workload));
  return may_change ? desired : before;
}

bool IsPriorityOutdated(const Observed& observed, const Json& workload) {
  return DesiredPriority(observed, &workload) != FieldsOf(workload);
}

}  // namespace lockstep::reconcile
