#include <iostream>

#include "runtime/common/api/names.h"
#include "runtime/tools/kubectl_plugin/commands.h"
#include "runtime/tools/kubectl_plugin/lookup.h"

namespace lockstep::kubectl_plugin {
namespace {

std::vector<std::string> Words(const api::TrainingJob& job, const LogsArguments& arguments) {
  std::vector<std::string> words = {"logs", "--namespace=" + job.metadata.namespace_name,
                                    "--container=" + job.spec.worker.container_name};
  if (arguments.follow) words.emplace_back("--follow");
  if (arguments.previous) words.emplace_back("--previous");
  return words;
}

Result<int> ShowAll(const Kubectl& kubectl, std::vector<std::string> words, const std::string& job,
                    std::size_t pods) {
  // The default limits of kubectl are too small for a selector that matches many pods.
  words.insert(words.end(), {"--selector=" + api::WorkerSelector(job), "--prefix", "--tail=-1",
                             "--ignore-errors", "--max-log-requests=" + std::to_string(pods)});
  LOCKSTEP_TRY(kubectl.Stream(words, [](std::string_view bytes) {
    std::cout << bytes << std::flush;
    return true;
  }));
  return 0;
}

Error NotPlaced(const api::TrainingJob& job, int64_t rank) {
  const int64_t world = job.status.rendezvous ? job.status.rendezvous->world_size : 0;
  std::string text = "no pod of " + job.metadata.name + " has logged rank " + std::to_string(rank);
  if (world > 0 && rank >= world) {
    text += ": its ranks are 0 to " + std::to_string(world - 1);
  } else {
    text += "; --all shows the logs of all pods";
  }
  return {ErrorCode::kNotFound, text};
}

}  // namespace

Result<int> Logs(const Kubectl& kubectl, const LogsArguments& arguments) {
  LOCKSTEP_TRY(const api::TrainingJob job, GetJob(kubectl, arguments.job));
  LOCKSTEP_TRY(const std::vector<PodRow> pods, GetPods(kubectl, job));
  if (pods.empty()) {
    return Error{ErrorCode::kNotFound,
                 arguments.job + " has no pods" +
                     (job.status.state.empty() ? "" : " (it is " + job.status.state + ")")};
  }
  std::vector<std::string> words = Words(job, arguments);
  if (arguments.all) return ShowAll(kubectl, std::move(words), arguments.job, pods.size());
  const RankPlaces places = FindPlaces(kubectl, job);
  const auto place = places.PodOf(arguments.rank);
  if (!place) return NotPlaced(job, arguments.rank);
  std::cerr << "rank " << arguments.rank << " of round " << place->round << ": pod " << place->pod << "\n";
  words.push_back(place->pod);
  LineReader reader;
  LOCKSTEP_TRY(kubectl.Stream(words, [&](std::string_view bytes) {
    reader.Add(bytes, [&](std::string_view line) {
      if (MayBeOfRank(line, arguments.rank, place->local_rank)) std::cout << line << "\n";
    });
    std::cout << std::flush;
    return true;
  }));
  return 0;
}

}  // namespace lockstep::kubectl_plugin
