#include "tests/integration/operator/test_job.h"

#include <set>
#include <utility>

#include "operator/reconcile/observe.h"
#include "runtime/common/api/names.h"
#include "tests/support/eventually.h"

namespace lockstep::testing {
namespace {

using reconcile::kJobs;

Json Must(Result<Json> answer) {
  LOCKSTEP_CHECK(answer.ok(), answer.ok() ? "" : answer.error().ToString());
  return std::move(answer).value();
}

bool EndsWith(const std::string& key, std::string_view end) { return std::string_view(key).ends_with(end); }

// What another run has otherwise.
bool IsOfThisRun(const std::string& key) {
  static const std::set<std::string> kKeys = {"uid",        "resourceVersion", "managedFields",
                                              "goodput",    "generation",      "clusterIP",
                                              "clusterIPs", "nodePort",        "observedGeneration"};
  return kKeys.contains(key) || EndsWith(key, "Time") || EndsWith(key, "Timestamp") ||
         EndsWith(key, "Seconds");
}

Json Scrubbed(const Json& value) {
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& entry : value) list.push_back(Scrubbed(entry));
    return list;
  }
  if (!value.is_object()) return value;
  Json kept = Json::object();
  for (const auto& [key, entry] : value.items()) {
    if (!IsOfThisRun(key)) kept[key] = Scrubbed(entry);
  }
  return kept;
}

std::string JobOf(const Json& object) { return StringAt(object, {"metadata", "labels", api::kLabelJob}); }

void ReplaceText(std::string& text, const std::string& from, const std::string& to) {
  if (from.empty()) return;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

TestNamespace::TestNamespace(http::HttpTransport& transport, std::string name_space)
    : name(std::move(name_space)),
      client(transport),
      pods({}, {JobOf}),
      services({}, {JobOf}),
      config_maps({}, {JobOf}) {
  Watch(kJobs, jobs);
  Watch(kube::kPods, pods);
  Watch(kube::kServices, services);
  Watch(kube::kConfigMaps, config_maps);
}

void TestNamespace::Watch(const kube::Resource& resource, kube::Store& store) {
  informers_.push_back(std::make_unique<kube::Informer>(
      client, kube::InformerOptions{.resource = resource, .name_space = name}, store,
      kube::Informer::Handler{}));
  informers_.back()->Start();
  LOCKSTEP_CHECK(Eventually([&] { return informers_.back()->synced(); }), "no list");
}

void TestJob::Create(const Json& spec) {
  (void)Must(home_.client.Create(
      kJobs, {{"metadata", {{"namespace", home_.name}, {"name", name_}}}, {"spec", spec}}));
}

void TestJob::Patch(const Json& spec) {
  (void)Must(home_.client.Patch(kJobs, {home_.name, name_}, {{"spec", spec}}, {}));
}

void TestJob::Delete() {
  const auto deleted = home_.client.Delete(kJobs, {home_.name, name_}, {});
  LOCKSTEP_CHECK(deleted.ok() || deleted.error().code == ErrorCode::kNotFound, deleted.error().ToString());
}

void TestJob::SetPod(int slot, const std::string& phase, int exit_code) {
  const bool runs = phase == "Running";
  const Json ended = {{"terminated", {{"exitCode", exit_code}, {"reason", "Error"}}}};
  const Json container = {{"name", "trainer"}, {"image", "i"},      {"imageID", ""},
                          {"ready", runs},     {"restartCount", 0}, {"state", runs ? Json() : ended}};
  const Json ready = {{"type", "Ready"}, {"status", runs ? "True" : "False"}};
  const Json status = {{"phase", phase},
                       {"conditions", Json::array({ready})},
                       {"containerStatuses", Json::array({container})}};
  (void)Must(home_.client.Patch(kube::kPods, {home_.name, api::PodName(name_, slot)}, {{"status", status}},
                                {.subresource = "status"}));
}

Json TestJob::job() const {
  const kube::Object object = home_.jobs.Get({home_.name, name_});
  return object == nullptr ? Json() : *object;
}

std::map<int, kube::Object> TestJob::pods() const {
  std::map<int, kube::Object> pods;
  for (const kube::Object& pod : home_.pods.ByIndex(name_)) {
    pods[std::stoi(StringAt(*pod, {"metadata", "labels", api::kLabelSlot}))] = pod;
  }
  return pods;
}

std::string TestJob::Neutral(std::string text) const {
  const Json present = job();
  if (present.is_object()) ReplaceText(text, kube::UidOf(present), "UID");
  ReplaceText(text, name_, "JOB");
  ReplaceText(text, home_.name, "NAMESPACE");
  return text;
}

Json TestJob::Canonical() const {
  Json all = {{"job", Scrubbed(job())}, {"pods", Json::object()}};
  for (const auto& [slot, pod] : pods()) all["pods"][std::to_string(slot)] = Scrubbed(*pod);
  // Those of a job that is gone go when the garbage collector comes to it.
  if (job().is_object()) {
    for (const kube::Object& service : home_.services.ByIndex(name_)) all["service"] = Scrubbed(*service);
    for (const kube::Object& map : home_.config_maps.ByIndex(name_)) all["config"] = Scrubbed(*map);
  }
  return *ParseJson(Neutral(DumpJson(all)));
}

}  // namespace lockstep::testing
