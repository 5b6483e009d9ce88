#pragma once
// What the driver of fake_nvml.cc says; a unit test finds it in the loaded library under the name `driver`
// and sets it. Until then there are two GPUs.

#include <array>
#include <deque>
#include <string>

struct FakeGpu {
  std::string uuid;
  std::string name;
  unsigned utilization_percent = 0;
  unsigned long long memory_total = 0;
  unsigned long long memory_used = 0;
  unsigned milliwatts = 0;
  unsigned celsius = 0;
  unsigned long long ecc_errors = 0;
  bool is_lost = false;   // answers nothing
  bool has_ecc = true;    // else: not supported
  bool is_slice = false;  // of a GPU (MIG): not counted, found by its UUID, knows its memory alone
  unsigned long long registered_events = 0;
};

struct FakeEvent {
  std::size_t gpu;
  unsigned long long type;
  unsigned long long data;
};

struct FakeDriver {
  std::array<FakeGpu, 3> gpus;
  std::deque<FakeEvent> events;
  bool refuses = false;    // init fails
  bool has_events = true;  // else: no event sets
  int users = 0;           // init without a shutdown yet
  int event_sets = 0;      // that were made and not freed
};
