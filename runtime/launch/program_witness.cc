#include "runtime/launch/program_witness.h"

#include <utility>

#include "runtime/common/base/log.h"
#include "runtime/launch/thread_report.h"
#include "runtime/witness/archive.h"

namespace lockstep::launch {

Result<void> ProgramWitness::MakeFiles() {
  if (!archive_.valid()) {
    LOCKSTEP_TRY(archive_, witness::MakeArchive());
  }
  LOCKSTEP_TRY(witness::Page page, witness::Page::Create());
  page_.emplace(std::move(page));
  return {};
}

void ProgramWitness::Begin(int64_t round, std::vector<std::string>& environment) {
  page_.reset();
  has_failed_ = false;
  if (const auto made = MakeFiles(); !made.ok())
    return log::Warning("the program is not observed", {{"reason", made.error().message}});
  observer_.emplace(round);
  const std::string path = EnvOr("PYTHONPATH", "");
  environment.push_back("PYTHONPATH=" + witness::PathOf(archive_) + (path.empty() ? "" : ":" + path));
  environment.push_back("LOCKSTEP_WITNESS_PAGE=" + page_->path());
}

std::vector<protocol::FromRank> ProgramWitness::Observe(SteadyTime now) {
  if (!page_.has_value()) return {};
  const witness::Observation seen = page_->Read();
  if (!seen.error.empty() && !std::exchange(has_failed_, true))
    log::Warning("the program is no longer observed", {{"reason", seen.error}});
  return observer_->Observe(seen, IsStopped(seen.pid), now);
}

void ProgramWitness::Take(const witness::TrainerStatus& status) {
  if (page_.has_value()) observer_->Take(status, page_->Read());
}

std::optional<protocol::Pong> ProgramWitness::Answer() const {
  if (!page_.has_value()) return protocol::Pong{};
  const witness::Observation seen = page_->Read();
  if (IsStopped(seen.pid)) return std::nullopt;
  return witness::AnswerFor(seen);
}

}  // namespace lockstep::launch
