#pragma once
// The page of shared memory in which the witness of a Python program (python/lockstep_witness.py) writes what it
// observes. The page is an anonymous file that `lockstep program` owns: the program opens it by a path under /proc,
// so no file is left behind and a read-only root file system does not matter. A program of another user cannot open
// the path and stays unobserved.
//
//   64-bit words  0 magic, written by Create    4 activity                   8 … 14 nanoseconds in each activity
//                 1 process, 0: none yet        5 whether it may wait for   16 … an error, as text
//                 2 optimizer steps               its peers in any activity
//                 3 step resumed from, less     6 when the newest step ended
//                   those of earlier processes
//
// Times are CLOCK_MONOTONIC. Each word is written by one store, so a reader never sees half of one; two words may
// be of two moments. One thread reads.

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/result.h"

namespace lockstep::witness {

// The numbers are those of lockstep_witness.py.
enum class Activity {
  kStep,  // between two others: the forward pass, or code that nothing is known of
  kData,
  kBackward,
  kOptimizer,
  kEvaluate,
  kSave,
  kCollective,
};
inline constexpr std::size_t kActivities = 7;

struct Observation {
  pid_t pid = 0;              // the process that trains; 0: no step was taken yet
  int64_t steps = 0;          // of this process and those of the program before it
  int64_t resumed_step = -1;  // the step that the program continued from; below 0: it is not known
  Activity activity = Activity::kStep;
  bool may_wait_for_peers = false;  // in any activity: it runs ahead of collectives that it has started
  double newest_step_at = 0;        // seconds of CLOCK_MONOTONIC
  std::array<double, kActivities> seconds{};  // in each activity that ended
  std::string error;                          // why the witness gave up; empty: it did not
};

class Page {
 public:
  [[nodiscard]] static Result<Page> Create();
  Page(Page&& other) noexcept;
  Page& operator=(Page&&) = delete;
  ~Page();

  // For the variable LOCKSTEP_WITNESS_PAGE, as long as the page exists.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] Observation Read() const;

 private:
  Page(Fd file, int64_t* words) : file_(std::move(file)), words_(words) {}

  Fd file_;
  int64_t* words_ = nullptr;
};

// An anonymous file of this name, closed on exec, and the path under which children find it.
[[nodiscard]] Result<Fd> MakeMemoryFile(const char* name, std::string_view content = {});
[[nodiscard]] std::string PathOf(const Fd& file);

}  // namespace lockstep::witness
