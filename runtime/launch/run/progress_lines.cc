#include "runtime/launch/run/progress_lines.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/common/base/strings.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// Moves to the beginning of the line and clears it.
constexpr const char* kLineAgain = "\r\033[K";

}  // namespace

ProgressLines::ProgressLines()
    : is_terminal_(::isatty(STDOUT_FILENO) == 1 && EnvOr("TERM", "dumb") != "dumb") {}

void ProgressLines::Show(const rendezvous::RendezvousView& view, SteadyTime now) {
  ShowRounds(view);
  if (view.evaluation.step > shown_evaluation_) {
    shown_evaluation_ = view.evaluation.step;
    Say("step " + std::to_string(view.evaluation.step) + ": test accuracy " +
        FormatNumber(view.evaluation.accuracy.value_or(NAN)) + ", loss " +
        FormatNumber(view.evaluation.loss.value_or(NAN)));
  }
  if (std::exchange(shown_checkpoint_, view.checkpoint_time) != view.checkpoint_time) {
    const std::string step =
        view.checkpoint.step < 0 ? "" : " of step " + std::to_string(view.checkpoint.step);
    Say("checkpoint" + step + ": " + view.checkpoint.uri);
  }
  ShowTroubleWithStores(view);
  if (view.progress.step > 0) ShowStep(view.progress, now);
}

void ProgressLines::ShowTroubleWithStores(const rendezvous::RendezvousView& view) {
  const rendezvous::StoreOutage outage = view.store_outage.value_or(rendezvous::StoreOutage{});
  if (std::exchange(shown_outage_, outage.waiting) != outage.waiting && !outage.waiting.empty())
    Say(outage.waiting + " waits for a store that does not answer: " + outage.reason);
  if (std::exchange(shown_save_failed_, view.save_failed) != view.save_failed && view.save_failed)
    Say("no checkpoint of step " + std::to_string(view.save_failed->step) + ": " + view.save_failed->reason);
}

void ProgressLines::ShowRounds(const rendezvous::RendezvousView& view) {
  // Several rounds may have ended since the last call.
  for (const rendezvous::RoundChange& change : view.changes) {
    if (change.round <= shown_change_) continue;
    shown_change_ = change.round;
    Say("round " + std::to_string(shown_change_) + " ended: " + change.reason);
  }
  if (view.world_size > 0 && view.round != shown_round_) {
    shown_round_ = view.round;
    Say("round " + std::to_string(view.round) + ": " + std::to_string(view.world_size) +
        (view.world_size == 1 ? " rank" : " ranks"));
  }
  if (std::exchange(shown_stragglers_, view.stragglers) != view.stragglers) {
    for (const rendezvous::SlowRank& slow : view.stragglers) Say(slow.ToString());
  }
}

void ProgressLines::ShowStep(const protocol::Progress& progress, SteadyTime now) {
  if (is_terminal_ && !progress.HasOnlySteps()) return DrawBar(progress, now);
  if (now - last_line_ > 2s) SayStep(progress, now);
}

void ProgressLines::SayStep(const protocol::Progress& progress, SteadyTime now) {
  if (progress.step <= shown_step_) return;
  shown_step_ = progress.step;
  last_line_ = now;
  if (progress.HasOnlySteps()) return Say("step " + std::to_string(shown_step_));
  Say("step " + std::to_string(shown_step_) + "/" + std::to_string(progress.total_steps) + "  epoch " +
      FormatNumber(progress.epoch, 3) + (progress.HasLoss() ? "  loss " + FormatNumber(progress.loss) : "") +
      (progress.samples_per_second > 0 ? "  " + FormatNumber(progress.samples_per_second) + " samples/s"
                                       : ""));
}

void ProgressLines::DrawBar(const protocol::Progress& progress, SteadyTime now) {
  winsize terminal{};
  const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0 && terminal.ws_col > 0;
  // The last column is not used, because some terminals wrap as soon as it is written.
  const int columns = is_known ? terminal.ws_col - 1 : 79;
  std::cout << kLineAgain << bar_.Draw(progress, now, columns) << std::flush;
  is_bar_drawn_ = true;
}

void ProgressLines::Say(const std::string& text) {
  // In one write, because lines of a program may come from another thread.
  std::cout << (std::exchange(is_bar_drawn_, false) ? kLineAgain : "") + text + "\n" << std::flush;
}

void ProgressLines::End(const rendezvous::RendezvousView& view, SteadyTime now) {
  Show(view, now);
  if (std::exchange(is_bar_drawn_, false)) {
    std::cout << std::endl;
  } else {
    SayStep(view.progress, now);
  }
}

}  // namespace lockstep::launch
