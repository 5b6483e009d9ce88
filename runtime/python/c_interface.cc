#include "runtime/python/c_interface.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/available_memory.h"
#include "runtime/common/base/json.h"
#include "runtime/data/sampler.h"
#include "runtime/data/slice.h"
#include "runtime/storage/azure_settings.h"
#include "runtime/storage/gcs_settings.h"

namespace lockstep::python {
namespace {

data::SamplePlan PlanOf(const lockstep_plan& plan) {
  return data::SamplePlan({.size = plan.size,
                           .global_batch = plan.global_batch,
                           .seed = plan.seed,
                           .shuffle = plan.shuffle != 0,
                           .drop_last = plan.drop_last != 0});
}

constexpr std::string_view kGoogle = "gs://";
constexpr std::string_view kAzure = "abfs://";

Json ToJson(const storage::GcsSettings& settings) {
  return {{"key", settings.key},
          {"isAnonymous", settings.is_anonymous},
          {"scheme", settings.scheme},
          {"endpoint", settings.endpoint}};
}

Json ToJson(const storage::AzureSettings& settings) {
  return {{"account", settings.account},
          {"path", settings.path},
          {"key", settings.key},
          {"sasToken", settings.sas_token},
          {"scheme", settings.scheme},
          {"blobAuthority", settings.blob_authority},
          {"dfsAuthority", settings.dfs_authority}};
}

template <typename Settings>
std::string ToText(const Result<Settings>& settings) {
  return DumpJson(settings.ok() ? ToJson(*settings) : Json{{"error", settings.error().message}});
}

std::string StoreSettings(const std::string& uri) {
  const storage::StoreUse use{.field = uri, .secret_field = "", .variable_prefix = ""};
  if (uri.starts_with(kGoogle)) return ToText(storage::GcsSettingsFromEnvironment(use));
  return ToText(storage::AzureSettingsFromEnvironment(use, uri.substr(kAzure.size())));
}

}  // namespace
}  // namespace lockstep::python

using lockstep::python::PlanOf;

int64_t lockstep_steps_per_epoch(const lockstep_plan* plan) { return PlanOf(*plan).steps_per_epoch(); }

int64_t lockstep_step_size(const lockstep_plan* plan, int64_t step) { return PlanOf(*plan).CountOf(step); }

void lockstep_share(int64_t count, int64_t rank, int64_t world, int64_t* begin, int64_t* end) {
  const lockstep::data::Slice share = lockstep::data::SliceOf(count, rank, world);
  *begin = share.begin;
  *end = share.end;
}

double lockstep_available_memory() { return lockstep::AvailableBytes().value_or(-1); }

const char* lockstep_store_settings(const char* uri) {
  thread_local std::string text;
  text = lockstep::python::StoreSettings(uri);
  return text.c_str();
}

void lockstep_sample_ids(const lockstep_plan* plan, int64_t step, int64_t begin, int64_t end, int64_t* ids) {
  const std::vector<int64_t> found = PlanOf(*plan).Ids(step, begin, end);
  std::copy(found.begin(), found.end(), ids);
}
