#include "runtime/train/step/micro_batch_source.h"

#include <optional>
#include <utility>
#include <vector>

namespace lockstep::train {

data::Loader::Source MicroBatchSource(std::function<RankShare(int64_t step)> share_of, int64_t begin,
                                      int64_t end) {
  return [share_of = std::move(share_of), step = begin, end, pieces = std::vector<Slice>(),
          next = std::size_t{0}](int64_t) mutable -> std::optional<data::Draw> {
    while (next == pieces.size()) {
      if (step >= end) return std::nullopt;
      pieces = share_of(step).pieces;
      next = 0;
      ++step;
    }
    const Slice piece = pieces[next++];
    return data::Draw{step - 1, piece.begin, piece.end};
  };
}

}  // namespace lockstep::train
