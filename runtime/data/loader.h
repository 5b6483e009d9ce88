#pragma once
// Makes batches ready ahead of their use. The source says which samples come n-th, so the loader has no state
// of its own to save: after a break it is simply started again from the plan. One thread owns a Loader and
// calls Next; `workers` threads of its own read the data set.

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "runtime/data/dataset.h"

namespace lockstep::data {

class Loader {
 public:
  // Ids of the n-th batch from the start, n = 0, 1, …; nullopt after the last one. Called under the loader's
  // lock, once for each n in order; must be quick.
  using Source = std::function<std::optional<std::vector<int64_t>>(int64_t n)>;

  // At most `prefetch` batches wait ready.
  Loader(const Dataset& dataset, int workers, int prefetch);
  ~Loader();

  // Drops what was made ready and begins again with `source`.
  void Start(Source source);
  // The next batch in order; kCancelled on `stop`, kNotFound after the last one. Throws what the data set
  // threw when it made this one.
  [[nodiscard]] Result<Batch> Next(std::stop_token stop);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data
