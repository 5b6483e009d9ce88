#include "operator/kube/informer.h"

#include <optional>
#include <utility>

#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/pause.h"

namespace lockstep::kube {
namespace {

// A watch that ends in good order sooner than this counts as a failure, because a proxy may end each watch at
// once.
constexpr std::chrono::seconds kShortestWatch{1};
// Short, because a connection that failed silently is noticed only ten seconds after this.
constexpr std::chrono::seconds kWatchTimeout{30};
constexpr double kWatchTimeoutSpread = 15;

}  // namespace

Informer::Informer(KubeReader& reader, InformerOptions options, Store& store, Handler handler)
    : reader_(reader), options_(std::move(options)), store_(store), handler_(std::move(handler)) {}

void Informer::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void Informer::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    Result<void> done;
    if (const auto ran = Guarded([&] { done = Step(stop); }); !ran.ok()) done = ran.error();
    if (stop.stop_requested()) return;
    if (done.ok()) continue;
    state_.OnFailure(done.error());
    const auto delay = BackoffDelay(options_.backoff, state_.failures(), RandomUnit());
    const auto level = state_.failures() > 2 ? log::Level::kWarning : log::Level::kDebug;
    log::Write(level, "list or watch failed, will retry",
               {{"resource", options_.resource.plural},
                {"error", done.error().ToString()},
                {"delay_ms", delay.count()}});
    PauseFor(delay, stop);
  }
}

Result<void> Informer::Step(const std::stop_token& stop) {
  const auto next = state_.next();
  if (const auto* list = std::get_if<ListNext>(&next)) return ListStep(*list, stop);
  return WatchStep(std::get<WatchNext>(next), stop);
}

Result<void> Informer::ListStep(const ListNext& next, const std::stop_token& stop) {
  LOCKSTEP_TRY(ListPage page, reader_.List(options_.resource,
                                           {.name_space = options_.name_space,
                                            .label_selector = options_.label_selector,
                                            .continue_token = next.continue_token},
                                           stop));
  // Each page at once, so that a list of 10,000 pods is never in memory as a whole.
  for (Json& item : page.items) item = store_.Slimmed(std::move(item));
  Apply(state_.OnPage(std::move(page)));
  synced_ = state_.synced();
  return {};
}

Result<void> Informer::WatchStep(const WatchNext& next, const std::stop_token& stop) {
  std::optional<Error> refused;
  const auto on_event = [&](WatchEvent event) {
    auto change = state_.OnEvent(std::move(event));
    if (!change.ok()) {
      refused = change.error();
      return false;
    }
    Apply(std::move(change).value());
    return true;
  };
  const auto begin = std::chrono::steady_clock::now();
  const auto timeout =
      kWatchTimeout + std::chrono::seconds(static_cast<int>(RandomUnit() * kWatchTimeoutSpread));
  auto ended = reader_.Watch(options_.resource,
                             {.name_space = options_.name_space,
                              .label_selector = options_.label_selector,
                              .resource_version = next.resource_version,
                              .timeout = timeout},
                             on_event, stop);
  if (refused) return *refused;
  if (!ended.ok()) return ended;
  const auto taken = std::chrono::steady_clock::now() - begin;
  if (options_.definition_may_change && taken < timeout) state_.OnEarlyEnd();
  if (taken >= kShortestWatch) return {};
  return Error{ErrorCode::kUnavailable, "the watch ended as soon as it had begun"};
}

void Informer::Apply(StoreChange change) {
  std::vector<ObjectChange> changes;
  if (auto* all = std::get_if<ReplaceAll>(&change)) {
    changes = store_.ReplaceAll(std::move(all->items), all->resource_version, options_.name_space);
  } else if (auto* put = std::get_if<Put>(&change)) {
    changes = store_.Put(std::move(put->object));
  } else if (auto* remove = std::get_if<Remove>(&change)) {
    changes = store_.Remove(std::move(remove->object));
  } else if (const auto* seen = std::get_if<Seen>(&change)) {
    store_.AdvanceTo(seen->resource_version, options_.name_space);
  }
  if (!handler_) return;
  for (const ObjectChange& entry : changes) handler_(entry);
}

}  // namespace lockstep::kube
