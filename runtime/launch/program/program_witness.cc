#include "runtime/launch/program/program_witness.h"

#include <utility>

#include "runtime/common/base/log.h"
#include "runtime/launch/process/thread_report.h"
#include "runtime/witness/archive.h"

namespace lockstep::launch {

Result<witness::Page> ProgramWitness::Prepare(std::vector<std::string>& environment) {
  if (!archive_.valid()) {
    LOCKSTEP_TRY(archive_, witness::MakeArchive());
    LOCKSTEP_TRY(imports_, witness::MakeMemoryFile("lockstep-witness-imports"));
  }
  LOCKSTEP_TRY(witness::Page page, witness::Page::Create());
  const std::string path = EnvOr("PYTHONPATH", "");
  environment.push_back("PYTHONPATH=" + witness::PathOf(archive_) + (path.empty() ? "" : ":" + path));
  environment.push_back("LOCKSTEP_WITNESS_PAGE=" + page.path());
  environment.push_back("LOCKSTEP_WITNESS_IMPORTS=" + witness::PathOf(imports_));
  return page;
}

void ProgramWitness::Begin(int64_t round, std::vector<std::string>& environment) {
  page_.reset();
  auto page = Prepare(environment);
  if (!page.ok()) return log::Warning("the program is not observed", {{"reason", page.error().message}});
  Begin(round, std::move(page).value());
}

void ProgramWitness::Begin(int64_t round, witness::Page page) {
  page_.emplace(std::move(page));
  has_failed_ = false;
  observer_.emplace(round);
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
