#pragma once
// List, then watch from that version, without end: the state machine without the network. Pure; one owner
// (informer.cc).
//
//   Listing ──page…last page──► Watching ──end, cut──► Watching (from the newest version seen)
//      ▲                            │
//      └──── 410 Gone, early end ───┘
//
// The design follows kube-rs' watcher: a new list replaces the store in one step, so that readers never see a
// partial list.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "operator/kube/client.h"
#include "runtime/common/base/error.h"

namespace lockstep::kube {

// What to ask the API server next.
struct ListNext {
  std::string continue_token;
};
struct WatchNext {
  std::string resource_version;
};

// What to do to the store.
struct ReplaceAll {
  std::vector<Json> items;
  std::string resource_version;
};
struct Put {
  Json object;
};
struct Remove {
  Json object;
};
struct Seen {  // nothing changed up to this version
  std::string resource_version;
};
using StoreChange = std::variant<std::monostate, ReplaceAll, Put, Remove, Seen>;

class WatchState {
 public:
  [[nodiscard]] std::variant<ListNext, WatchNext> next() const;

  [[nodiscard]] StoreChange OnPage(ListPage page);
  // An ERROR event is returned as the error. Pass it to OnFailure once the stream is closed.
  [[nodiscard]] Result<StoreChange> OnEvent(WatchEvent event);
  // The watch ended in good order, but sooner than requested: the kind is listed again.
  void OnEarlyEnd() { watching_ = false; }
  // A list or watch failed.
  void OnFailure(const Error& error);

  // Consecutive failures since the last page or event; the input of the back-off.
  [[nodiscard]] int failures() const { return failures_; }
  [[nodiscard]] bool synced() const { return synced_; }

 private:
  bool watching_ = false;
  bool synced_ = false;      // the first list is complete
  std::vector<Json> pages_;  // of the list in progress
  std::string continue_token_;
  std::string resource_version_;  // newest seen
  int failures_ = 0;
};

}  // namespace lockstep::kube
