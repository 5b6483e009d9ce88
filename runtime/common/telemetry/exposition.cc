#include "runtime/common/telemetry/exposition.h"

#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "runtime/common/base/resident_memory.h"

namespace lockstep::telemetry {
namespace {

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double OpenDescriptors() {
  std::error_code error;
  double count = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    ++count;
  }
  return count;
}

prometheus::MetricFamily Single(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::ClientMetric metric;
  type == prometheus::MetricType::Counter ? metric.counter.value = value : metric.gauge.value = value;
  return {name, help, type, {metric}};
}

std::vector<prometheus::MetricFamily> ProcessFamilies() {
  return {
      Single("process_resident_memory_bytes", "Resident memory of this process.",
             prometheus::MetricType::Gauge, ResidentBytes(::getpid()).value_or(0)),
      Single("process_cpu_seconds_total", "User and system CPU time of this process.",
             prometheus::MetricType::Counter, CpuSeconds()),
      Single("process_open_fds", "Open file descriptors of this process.", prometheus::MetricType::Gauge,
             OpenDescriptors()),
  };
}

}  // namespace

void AddBuildInfo(prometheus::Registry& registry, const std::string& program) {
  prometheus::BuildGauge()
      .Name("lockstep_build_info")
      .Help("Version of the program, as a label.")
      .Register(registry)
      .Add({{"version", LOCKSTEP_VERSION}, {"program", program}})
      .Set(1);
}

http::Response MetricsResponse(const prometheus::Registry& registry) {
  std::vector<prometheus::MetricFamily> families = registry.Collect();
  for (prometheus::MetricFamily& family : ProcessFamilies()) families.push_back(std::move(family));
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return {200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, text.str()};
}

}  // namespace lockstep::telemetry
