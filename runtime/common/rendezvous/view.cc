#include "runtime/common/rendezvous/view.h"

#include "runtime/common/base/strings.h"

namespace lockstep::rendezvous {

std::string SlowRank::ToString() const {
  return "rank " + std::to_string(rank) + " (" + pod + ") is a straggler: it computes " +
         FormatNumber(slowness, 2) + " times as long as the median rank";
}

}  // namespace lockstep::rendezvous
