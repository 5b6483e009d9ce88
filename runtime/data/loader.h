#pragma once
// Makes batches ready ahead of their use. The source says which draw comes n-th, so the loader has no state
// of its own to save: after a break it is simply started again from the plan. One thread owns a Loader and
// calls Next; `workers` threads of its own read.

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

#include "runtime/data/training_samples.h"

namespace lockstep::data {

class Loader {
 public:
  // The n-th draw from the start, n = 0, 1, …; nullopt after the last one. Called under the loader's lock,
  // once for each n in order; must be quick.
  using Source = std::function<std::optional<Draw>(int64_t n)>;
  // Makes the batch of a draw. Called by all workers at once.
  using Read = std::function<Batch(const Draw& draw)>;

  // At most `prefetch` batches wait ready. Without workers, Next reads by itself.
  Loader(Read read, int workers, int prefetch);
  ~Loader();

  // Drops what was made ready and begins again with `source`.
  void Start(Source source);
  // The next batch in order; kCancelled on `stop`, kNotFound after the last one. Throws what
  // reading this one threw.
  [[nodiscard]] Result<Batch> Next(std::stop_token stop);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data
