#include "runtime/telemetry/gpu_reader.h"

#include <array>
#include <charconv>

#include "runtime/common/base/strings.h"
#include "runtime/telemetry/nvml.h"

namespace lockstep::telemetry {
namespace {

struct Gpu {
  nvml::Device device = nullptr;
  std::string uuid;
  std::string name;
};

using TextOf = int (*)(nvml::Device, char*, unsigned);

std::string Ask(TextOf question, nvml::Device device) {
  std::array<char, nvml::kLongestText> text{};
  if (question(device, text.data(), text.size()) != nvml::kSuccess) return "";
  return text.data();
}

Gpu GpuOf(const nvml::Library& nvml, nvml::Device device) {
  return {device, Ask(nvml.uuid, device), Ask(nvml.name, device)};
}

std::vector<Gpu> AllOf(const nvml::Library& nvml) {
  unsigned count = 0;
  if (nvml.count(&count) != nvml::kSuccess) return {};
  std::vector<Gpu> gpus(count);
  for (unsigned index = 0; index < count; ++index) {
    nvml::Device device = nullptr;
    // A lost GPU keeps its index.
    if (nvml.device_at(index, &device) == nvml::kSuccess) gpus[index] = GpuOf(nvml, device);
  }
  return gpus;
}

// Finds an entry of CUDA_VISIBLE_DEVICES: "1", "GPU-3f5c" (a prefix of the UUID is enough), "MIG-…".
std::optional<Gpu> FindGpu(const nvml::Library& nvml, const std::vector<Gpu>& all, const std::string& entry) {
  if (entry.starts_with("MIG-")) {
    nvml::Device slice = nullptr;
    if (nvml.device_of_uuid(entry.c_str(), &slice) != nvml::kSuccess) return std::nullopt;
    return GpuOf(nvml, slice);
  }
  if (entry.starts_with("GPU-")) {
    for (const Gpu& gpu : all) {
      if (gpu.uuid.starts_with(entry)) return gpu;
    }
    return std::nullopt;
  }
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (error != std::errc() || end != entry.data() + entry.size() || index >= all.size()) return std::nullopt;
  return all[index];
}

// As in CUDA: entries after an invalid one are not visible.
std::vector<Gpu> Select(const nvml::Library& nvml, const GpuSelection& selection) {
  std::vector<Gpu> all = AllOf(nvml);
  std::vector<Gpu> chosen;
  if (!selection.visible.has_value()) {
    chosen = std::move(all);
  } else {
    for (const std::string& entry : Split(*selection.visible, ',')) {
      const std::optional<Gpu> gpu = FindGpu(nvml, all, entry);
      if (!gpu.has_value()) break;
      chosen.push_back(*gpu);
    }
  }
  if (chosen.size() > selection.most) chosen.resize(selection.most);
  return chosen;
}

}  // namespace

struct GpuReader::State {
  nvml::Library nvml;
  std::vector<Gpu> gpus;
  std::size_t ranks = 1;
  nvml::EventSet events = nullptr;  // null: this driver reports no events

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (events != nullptr) nvml.free_event_set(events);
    nvml.shutdown();
  }

  void WatchForXids() {
    if (nvml.make_event_set(&events) != nvml::kSuccess) {
      events = nullptr;
      return;
    }
    // A GPU that does not support events is not registered.
    for (const Gpu& gpu : gpus) (void)nvml.register_events(gpu.device, nvml::kXidEvent, events);
  }

  [[nodiscard]] bool IsOf(const nvml::EventData& event, const Gpu& gpu) const {
    // Compares the handle, too, because a lost GPU no longer reports its UUID.
    return event.device == gpu.device || Ask(nvml.uuid, event.device) == gpu.uuid;
  }

  // Takes the events that the driver has queued, without waiting for more.
  void TakeXids(std::vector<GpuReading>& readings) const {
    if (events == nullptr) return;
    constexpr int kMost = 1000;  // bounds the loop if a GPU fails faster than events are read
    nvml::EventData event{};
    for (int i = 0; i < kMost && nvml.wait_for_event(events, &event, 0) == nvml::kSuccess; ++i) {
      if (event.type != nvml::kXidEvent) continue;
      for (std::size_t at = 0; at < gpus.size(); ++at) {
        if (IsOf(event, gpus[at])) readings[at].xids.push_back(event.data);
      }
    }
  }

  [[nodiscard]] GpuReading Read(const Gpu& gpu) const {
    GpuReading reading{.uuid = gpu.uuid, .name = gpu.name};
    if (nvml::Utilization value{}; nvml.utilization(gpu.device, &value) == nvml::kSuccess)
      reading.utilization = value.gpu / 100.0;
    if (nvml::Memory value{}; nvml.memory(gpu.device, &value) == nvml::kSuccess) {
      reading.memory_used_bytes = static_cast<double>(value.used);
      reading.memory_total_bytes = static_cast<double>(value.total);
    }
    if (unsigned value = 0; nvml.power(gpu.device, &value) == nvml::kSuccess)
      reading.power_watts = value / 1000.0;
    if (unsigned value = 0; nvml.temperature(gpu.device, nvml::kTemperatureOfGpu, &value) == nvml::kSuccess)
      reading.temperature_celsius = value;
    unsigned long long errors = 0;
    if (nvml.ecc_errors(gpu.device, nvml::kUncorrectedErrors, nvml::kSinceDriverLoaded, &errors) ==
        nvml::kSuccess)
      reading.ecc_errors = static_cast<double>(errors);
    return reading;
  }
};

GpuReader::GpuReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
GpuReader::~GpuReader() = default;

Result<std::unique_ptr<GpuReader>> GpuReader::Open(const std::string& library,
                                                   const GpuSelection& selection) {
  LOCKSTEP_TRY(const nvml::Library nvml, nvml::Load(library));
  if (const int error = nvml.init(); error != nvml::kSuccess)
    return Error{ErrorCode::kNotFound, library + ": " + nvml.error_text(error)};
  auto state = std::make_unique<State>();
  state->nvml = nvml;
  state->gpus = Select(nvml, selection);
  state->ranks = selection.ranks;
  if (state->gpus.empty()) return Error{ErrorCode::kNotFound, "the driver shows no GPU to this pod"};
  state->WatchForXids();
  return std::unique_ptr<GpuReader>(new GpuReader(std::move(state)));
}

std::vector<GpuReading> GpuReader::Read() {
  std::vector<GpuReading> readings;
  for (std::size_t i = 0; i < state_->gpus.size(); ++i) {
    readings.push_back(state_->Read(state_->gpus[i]));
    readings.back().gpu = static_cast<int>(i);
    readings.back().local_rank = static_cast<int>(i * state_->ranks / state_->gpus.size());
  }
  state_->TakeXids(readings);
  return readings;
}

}  // namespace lockstep::telemetry
