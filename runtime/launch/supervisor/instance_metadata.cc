#include "runtime/launch/supervisor/instance_metadata.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/queue.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"
#include "runtime/common/http/cpprest_transport.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using protocol::InstanceMetadata;
using protocol::NodeDeparts;
using Departure = std::optional<NodeDeparts>;

constexpr Milliseconds kLookPeriod = 5s;
constexpr Milliseconds kLookPeriodWithoutAnswer = 60s;
constexpr Milliseconds kRequestTime = 2s;

// The body; nothing if there is no such object, which is how AWS says that nothing is planned.
Result<std::optional<std::string>> Ask(http::HttpTransport& service, http::Request request,
                                       std::stop_token stop) {
  request.timeout = kRequestTime;
  const std::string what = request.method + " " + request.target;
  auto answer = service.Send(request, std::move(stop));
  if (!answer.ok()) return Error{answer.error().code, what + ": " + answer.error().message};
  if (answer->status == 404) return std::optional<std::string>();
  if (answer->status != 200)
    return Error{ErrorCode::kUnavailable, what + ": status " + std::to_string(answer->status)};
  return std::optional(std::move(answer->body));
}

Result<Json> JsonOf(const std::optional<std::string>& body, const std::string& what) {
  auto json = ParseJson(body.value_or(""));
  if (!json.ok() || !json->is_object()) return Error{ErrorCode::kUnavailable, what + ": no JSON object"};
  return json;
}

double UnixTime(const Result<WallTime>& time) {
  return time.ok() ? Seconds(time->time_since_epoch()).count() : 0;
}

// "Mon, 19 Sep 2022 18:29:47 GMT"; 0 if it is none, as for an event that has begun.
double UnixTimeOfHttpDate(const std::string& text) {
  std::tm time{};
  const char* const end = ::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &time);
  return end == nullptr ? 0 : static_cast<double>(::timegm(&time));
}

Result<Departure> OfAws(http::HttpTransport& service, const std::stop_token& stop) {
  const std::map<std::string, std::string> lifetime = {{"X-aws-ec2-metadata-token-ttl-seconds", "60"}};
  LOCKSTEP_TRY(
      const auto token,
      Ask(service, {.method = "PUT", .target = "/latest/api/token", .headers = lifetime, .body = ""}, stop));
  const std::string target = "/latest/meta-data/spot/instance-action";
  LOCKSTEP_TRY(
      const auto body,
      Ask(service,
          {.target = target, .headers = {{"X-aws-ec2-metadata-token", token.value_or("")}}, .body = ""},
          stop));
  if (!body.has_value()) return Departure();
  LOCKSTEP_TRY(const Json action, JsonOf(body, target));
  return Departure({.reason = "AWS: spot interruption: " + StringAt(action, {"action"}),
                    .deadline = UnixTime(ParseTime(StringAt(action, {"time"})))});
}

Result<Departure> OfGcp(http::HttpTransport& service, const std::stop_token& stop) {
  LOCKSTEP_TRY(const auto body, Ask(service,
                                    {.target = "/computeMetadata/v1/instance/preempted",
                                     .headers = {{"Metadata-Flavor", "Google"}},
                                     .body = ""},
                                    stop));
  if (!body.value_or("").starts_with("TRUE")) return Departure();
  return Departure({.reason = "GCP: the machine is preempted"});
}

Result<Departure> OfAzure(http::HttpTransport& service, const std::stop_token& stop) {
  const std::map<std::string, std::string> headers = {{"Metadata", "true"}};
  LOCKSTEP_TRY(const auto name,
               Ask(service,
                   {.target = "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
                    .headers = headers,
                    .body = ""},
                   stop));
  const std::string target = "/metadata/scheduledevents?api-version=2020-07-01";
  LOCKSTEP_TRY(const auto body, Ask(service, {.target = target, .headers = headers, .body = ""}, stop));
  LOCKSTEP_TRY(const Json answer, JsonOf(body, target));
  const Json* events = FindJson(answer, {"Events"});
  if (events == nullptr || !events->is_array()) return Departure();
  for (const Json& event : *events) {
    const std::string type = StringAt(event, {"EventType"});
    const Json* machines = FindJson(event, {"Resources"});
    const bool is_ours =
        machines != nullptr && machines->is_array() &&
        std::find(machines->begin(), machines->end(), Json(name.value_or(""))) != machines->end();
    if (!is_ours || (type != "Preempt" && type != "Terminate")) continue;
    return Departure({.reason = "Azure: scheduled event " + type,
                      .deadline = UnixTimeOfHttpDate(StringAt(event, {"NotBefore"}))});
  }
  return Departure();
}

std::string ServiceOf(InstanceMetadata cloud) {
  std::string link_local = "http://169.254.169.254";
  if (cloud == InstanceMetadata::kAws) return EnvOr("AWS_EC2_METADATA_SERVICE_ENDPOINT", link_local);
  if (cloud == InstanceMetadata::kGcp)
    return "http://" + EnvOr("GCE_METADATA_HOST", "metadata.google.internal");
  return link_local;
}

}  // namespace

Result<Departure> LookForDeparture(InstanceMetadata cloud, http::HttpTransport& service,
                                   std::stop_token stop) {
  switch (cloud) {
    case InstanceMetadata::kAws: return OfAws(service, stop);
    case InstanceMetadata::kGcp: return OfGcp(service, stop);
    case InstanceMetadata::kAzure: return OfAzure(service, stop);
    case InstanceMetadata::kNone: break;
  }
  return Departure();
}

Result<std::unique_ptr<DepartureWatch>> DepartureWatch::Start(
    InstanceMetadata cloud, std::function<void(const NodeDeparts&)> report) {
  LOCKSTEP_TRY(auto service, http::MakeTransport({.url = ServiceOf(cloud), .use_proxy_environment = false}));
  return std::unique_ptr<DepartureWatch>(new DepartureWatch(cloud, std::move(service), std::move(report)));
}

DepartureWatch::DepartureWatch(InstanceMetadata cloud, std::unique_ptr<http::HttpTransport> service,
                               std::function<void(const NodeDeparts&)> report)
    : cloud_(cloud),
      service_(std::move(service)),
      report_(std::move(report)),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

void DepartureWatch::Run(const std::stop_token& stop) {
  Queue<int> never;
  bool answers = true;
  while (!stop.stop_requested()) {
    const auto departure = LookForDeparture(cloud_, *service_, stop);
    if (departure.ok() && departure->has_value()) return report_(**departure);
    if (stop.stop_requested()) return;
    if (std::exchange(answers, departure.ok()) && !departure.ok())
      log::Warning("the metadata service of the cloud does not answer",
                   {{"error", departure.error().message}});
    const SteadyTime next =
        std::chrono::steady_clock::now() + (answers ? kLookPeriod : kLookPeriodWithoutAnswer);
    (void)never.PopUntil(next, stop);
  }
}

}  // namespace lockstep::launch
