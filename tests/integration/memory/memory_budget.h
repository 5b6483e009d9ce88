#pragma once
// How much memory a forked rank may have: a cgroup, in which the kernel kills it where it takes more, and the
// peak of its resident memory, which needs no permission.

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::testing {

// A memory cgroup below the test's own, v1 or v2. The test makes it, a child enters it.
class MemoryGroup {
 public:
  // Nothing where the test may not make one.
  static std::optional<MemoryGroup> Make(const std::string& name);
  ~MemoryGroup();  // the child has ended
  MemoryGroup(MemoryGroup&& other) noexcept;

  void Enter() const;  // what the calling process has already stays with the group that it came from
  [[nodiscard]] int64_t Usage() const;
  void Limit(int64_t bytes) const;
  void Unlimit() const;

 private:
  MemoryGroup(std::string folder, bool is_v2) : folder_(std::move(folder)), is_v2_(is_v2) {}

  std::string folder_;
  bool is_v2_;
};

// Of the calling process.
class MemoryBudget {
 public:
  // Before the process takes what counts.
  explicit MemoryBudget(const std::optional<MemoryGroup>& group);
  // From here on so many bytes beyond what the process has.
  void Allow(int64_t bytes);
  // Most bytes beyond that since Allow. The limit ends.
  [[nodiscard]] int64_t TakePeak();

 private:
  const std::optional<MemoryGroup>& group_;
  int64_t resident_ = 0;  // at Allow
};

}  // namespace lockstep::testing
