#include "operator/kube/watch_state.h"

#include <iterator>
#include <utility>

#include "operator/kube/status_error.h"

namespace lockstep::kube {

std::variant<ListNext, WatchNext> WatchState::next() const {
  if (watching_) return WatchNext{resource_version_};
  return ListNext{continue_token_};
}

StoreChange WatchState::OnPage(ListPage page) {
  failures_ = 0;
  pages_.insert(pages_.end(), std::make_move_iterator(page.items.begin()),
                std::make_move_iterator(page.items.end()));
  continue_token_ = std::move(page.continue_token);
  if (!continue_token_.empty()) return {};
  resource_version_ = std::move(page.resource_version);
  watching_ = true;
  synced_ = true;
  return ReplaceAll{std::exchange(pages_, {}), resource_version_};
}

Result<StoreChange> WatchState::OnEvent(WatchEvent event) {
  if (event.type == WatchEventType::kError) return ErrorFromStatus(event.object, 500);
  failures_ = 0;
  const std::string version = StringAt(event.object, {"metadata", "resourceVersion"});
  if (!version.empty()) resource_version_ = version;
  if (event.type == WatchEventType::kBookmark) return StoreChange(Seen{version});
  if (event.type == WatchEventType::kDeleted) return StoreChange(Remove{std::move(event.object)});
  return StoreChange(Put{std::move(event.object)});
}

void WatchState::OnFailure(const Error& error) {
  ++failures_;
  // A list in progress cannot continue either: its snapshot may be compacted.
  if (error.code != ErrorCode::kGone && watching_) return;
  watching_ = false;
  pages_.clear();
  continue_token_.clear();
}

}  // namespace lockstep::kube
