#include "runtime/checkpoint/history_file.h"

#include <exception>
#include <utility>

#include "runtime/common/base/log.h"

namespace lockstep::checkpoint {

void HistoryFile::Keep(const std::vector<protocol::HistoryRecord>& history,
                       const std::stop_token& abandoned) {
  if (history.empty() || abandoned.stop_requested()) return;
  const Result<void> written = WriteAndCatch(history, abandoned);
  if (!std::exchange(fails_, !written.ok()) && !written.ok())
    log::Warning("history not written", {{"error", written.error().message}});
}

Result<void> HistoryFile::WriteAndCatch(const std::vector<protocol::HistoryRecord>& history,
                                        const std::stop_token& abandoned) {
  try {
    return Write(history, abandoned);
  } catch (const std::exception& exception) {  // for example lack of memory
    return Error{ErrorCode::kInternal, std::string(protocol::kHistoryName) + ": " + exception.what()};
  }
}

// A process has only the records since its start; the earlier ones are in the file.
Result<void> HistoryFile::Write(const std::vector<protocol::HistoryRecord>& history,
                                const std::stop_token& abandoned) {
  const std::string name(protocol::kHistoryName);
  const Result<std::string> text = store_.Get(name);
  if (!text.ok() && text.error().code != ErrorCode::kNotFound) return text.error();
  const protocol::HistoryText stored = protocol::ReadHistory(text.ok() ? *text : "");
  if (!stored.problems.empty()) {
    log::Warning("damaged lines of the history skipped",
                 {{"uri", store_.UriOf(name)}, {"first", stored.problems.front()}});
  }
  if (abandoned.stop_requested()) return {};
  return store_.Put(name, protocol::EncodeHistory(protocol::Continue(stored.records, history)));
}

}  // namespace lockstep::checkpoint
