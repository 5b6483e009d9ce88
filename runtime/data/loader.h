#pragma once
// Prepares batches ahead of their use. The source is a function from n to the n-th draw, so the loader has no
// state to save: after a broken round it is restarted from the plan. One thread owns a Loader and calls Next;
// `workers` threads of the loader read.

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

#include "runtime/data/training_samples.h"

namespace lockstep::data {

class Loader {
 public:
  // The n-th draw since the start, n = 0, 1, …; nullopt after the last one. Called under the loader's lock,
  // once for each n in order; must return quickly.
  using Source = std::function<std::optional<Draw>(int64_t n)>;
  // Reads the batch of a draw. Called concurrently by all workers.
  using Read = std::function<Batch(const Draw& draw)>;

  // At most `prefetch` batches are prepared. With 0 workers, Next reads on the calling thread.
  Loader(Read read, int workers, int prefetch);
  ~Loader();

  // Discards prepared batches and restarts with `source`.
  void Start(Source source);
  // Returns the next batch in order. kCancelled: `stop` was requested. kNotFound: it was the last one.
  // Rethrows the exception of Read for this batch.
  [[nodiscard]] Result<Batch> Next(std::stop_token stop);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data
