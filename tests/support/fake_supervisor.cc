#include "tests/support/fake_supervisor.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "runtime/common/base/log.h"

namespace lockstep::testing {

FakeSupervisor::~FakeSupervisor() {
  for (RankView& rank : ranks_) {
    if (!rank.alive) continue;
    ::kill(rank.pid, SIGKILL);
    rank.process.reset();
    ::waitpid(rank.pid, nullptr, 0);
  }
}

int FakeSupervisor::Start() {
  const int index = count();
  auto tell = [this, index](std::variant<protocol::FromRank, Ended> what) {
    news_.Push({index, std::move(what), std::chrono::steady_clock::now()});
  };
  auto process = launch::RankProcess::Start(
      rank_program_, 0,
      {.on_message = [tell](protocol::FromRank message) { tell(std::move(message)); },
       .on_socket_end = [tell] { tell(Ended{}); }});
  LOCKSTEP_CHECK(process.ok(), process.ok() ? "" : process.error().message);
  RankView rank;
  rank.process = std::move(process).value();
  rank.pid = rank.process->pid();
  ranks_.push_back(std::move(rank));
  return index;
}

void FakeSupervisor::Signal(int index, int signal) { ::kill(rank(index).pid, signal); }

void FakeSupervisor::Stop(int index, double grace_seconds) {
  rank(index).process->Tell(protocol::Stop{grace_seconds});
}

void FakeSupervisor::AbortRound() { TellOthers(RankView{}, protocol::LeaveMode::kAbort); }

bool FakeSupervisor::RunUntil(const std::function<bool()>& done, std::chrono::seconds limit) {
  const SteadyTime deadline = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    const auto news = news_.PopUntil(deadline, {});
    if (!news.has_value()) return false;
    Handle(*news);
    FormRoundIfAllReady();
  }
  return true;
}

int64_t FakeSupervisor::LowestStep() const {
  int64_t lowest = INT64_MAX;
  for (const RankView& rank : ranks_) {
    if (rank.alive) lowest = std::min(lowest, rank.progress.step);
  }
  return lowest;
}

bool FakeSupervisor::AllEnded() const {
  return std::none_of(ranks_.begin(), ranks_.end(), [](const RankView& rank) { return rank.alive; });
}

void FakeSupervisor::Handle(const News& news) {
  RankView& rank = ranks_.at(static_cast<std::size_t>(news.index));
  if (std::holds_alternative<Ended>(news.what)) {
    Reap(rank);
    if (rank.in_round && !rank.finished) TellOthers(rank, protocol::LeaveMode::kAbort);
    rank.in_round = false;
    return;
  }
  Hear(rank, std::get<protocol::FromRank>(news.what), news.time);
}

void FakeSupervisor::Hear(RankView& rank, const protocol::FromRank& message, SteadyTime time) {
  if (const auto* ready = std::get_if<protocol::Ready>(&message)) {
    rank.ready = true;
    rank.in_round = false;
    rank.last_ready = *ready;
    TellOthers(rank, protocol::LeaveMode::kYield);
  } else if (const auto* broken = std::get_if<protocol::Broken>(&message)) {
    if (broken->round == round_) TellOthers(rank, protocol::LeaveMode::kAbort);
  } else if (const auto* progress = std::get_if<protocol::Progress>(&message)) {
    rank.progress = *progress;
    if (rank.in_round && progress->round == round_) rank.first_commit.try_emplace(progress->round, time);
  } else if (const auto* synced = std::get_if<protocol::Synced>(&message)) {
    rank.synced.push_back(*synced);
  } else if (const auto* evaluated = std::get_if<protocol::Evaluated>(&message)) {
    rank.evaluated.push_back(*evaluated);
  } else if (const auto* saved = std::get_if<protocol::Saved>(&message)) {
    rank.saved.push_back(*saved);
  } else if (const auto* failed = std::get_if<protocol::Failed>(&message)) {
    rank.failed = *failed;
  } else if (std::holds_alternative<protocol::Finished>(message)) {
    rank.finished = true;
  }
}

void FakeSupervisor::Reap(RankView& rank) {
  rank.process.reset();  // closes the socket; a process that is still there is killed
  int status = 0;
  ::waitpid(rank.pid, &status, 0);
  rank.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  rank.alive = false;
  rank.ready = false;
}

void FakeSupervisor::TellOthers(const RankView& except, protocol::LeaveMode mode) {
  for (RankView& rank : ranks_) {
    if (&rank != &except && rank.alive && rank.in_round)
      rank.process->Tell(protocol::RoundOver{round_, mode});
  }
}

void FakeSupervisor::FormRoundIfAllReady() {
  std::vector<RankView*> members;
  for (RankView& rank : ranks_) {
    if (!rank.alive) continue;
    if (!rank.ready) return;
    members.push_back(&rank);
  }
  if (members.empty() || required_ == 0 || static_cast<int>(members.size()) < required_) return;
  ++round_;
  const int store_port = members.front()->last_ready.store_port;
  int64_t newest = -1;
  for (const RankView* member : members) newest = std::max(newest, member->last_ready.step);
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i]->ready = false;
    members[i]->in_round = true;
    members[i]->process->Tell(protocol::RankAssignment{.round = round_,
                                                       .rank = static_cast<int>(i),
                                                       .world = static_cast<int>(members.size()),
                                                       .address = "127.0.0.1",
                                                       .store_host = "127.0.0.1",
                                                       .store_port = store_port,
                                                       .newest_step = newest});
  }
}

}  // namespace lockstep::testing
