#pragma once
// Cuts the bytes that a rank sends into its messages (protocol/rank_control.h). One thread.

#include <functional>
#include <string>
#include <string_view>

#include "runtime/common/protocol/rank_control.h"

namespace lockstep::launch {

class RankMessages {
 public:
  // A rank that sends more than this without a newline is faulty.
  static constexpr std::size_t kLongestLine = 1 << 20;

  // Calls back for each message that is complete. A line that cannot be read is logged and ignored. Returns false for a
  // line that is too long: read no more from this rank.
  [[nodiscard]] bool Take(std::string_view bytes, const std::function<void(protocol::FromRank)>& on_message);

 private:
  std::string pending_;
};

}  // namespace lockstep::launch
