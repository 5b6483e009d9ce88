#include "runtime/launch/supervisor/rank_messages.h"

#include <utility>

#include "runtime/common/base/log.h"

namespace lockstep::launch {

bool RankMessages::Take(std::string_view bytes, const std::function<void(protocol::FromRank)>& on_message) {
  pending_.append(bytes);
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    auto message = protocol::DecodeFromRank(pending_.substr(begin, end - begin));
    if (message.ok()) {
      on_message(std::move(message).value());
    } else {
      log::Error("unreadable message from a rank", {{"error", message.error().message}});
    }
  }
  pending_.erase(0, begin);
  return pending_.size() < kLongestLine;
}

}  // namespace lockstep::launch
