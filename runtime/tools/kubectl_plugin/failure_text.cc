#include "runtime/tools/kubectl_plugin/failure_text.h"

#include <algorithm>
#include <string>

#include "runtime/common/base/strings.h"
#include "runtime/common/command_line/text.h"

namespace lockstep::kubectl_plugin {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "E1122 23:41:40.123456  7 memcache.go:265] …": kubectl's own log, which repeats the message.
bool IsLogRecord(std::string_view line) {
  const bool has_head =
      line.size() > 5 && std::string_view("EWI").find(line[0]) != std::string_view::npos &&
      std::all_of(line.begin() + 1, line.begin() + 5, [](char c) { return c >= '0' && c <= '9'; });
  return has_head && Contains(line, ".go:");
}

// The message on one line, without kubectl's usual prefix.
std::string Essence(std::string_view said) {
  std::vector<std::string> parts;
  for (const std::string& line : Split(said, '\n')) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin != std::string::npos && !IsLogRecord(line))
      parts.push_back(command_line::OneLine(line.substr(begin)));
  }
  std::string text = Join(parts, " ");
  for (const std::string_view prefix : {"error: ", "Error from server ", "Error from server: "}) {
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
  }
  if (text.starts_with('(') && Contains(text, "): ")) text.erase(0, text.find("): ") + 3);
  return text;
}

}  // namespace

Error ExplainFailure(std::string_view said) {
  const std::string essence = Essence(said);
  if (Contains(said, "doesn't have a resource type") ||
      Contains(said, "could not find the requested resource")) {
    return {ErrorCode::kUnsupported,
            "this cluster has no DistributedTrainingJobs: Lockstep is not installed, or --context names "
            "another cluster"};
  }
  if (Contains(said, "(NotFound)")) {
    constexpr std::string_view kJob = "distributedtrainingjobs.lockstep.dev ";
    if (!essence.starts_with(kJob)) return {ErrorCode::kNotFound, essence};
    const std::string rest = essence.substr(kJob.size());
    return {ErrorCode::kNotFound, "there is no job " + rest.substr(0, rest.find(" not found")) +
                                      " in this namespace; `kubectl lockstep status -A` lists all jobs"};
  }
  if (Contains(said, "(Forbidden)")) return {ErrorCode::kForbidden, "not allowed: " + essence};
  if (Contains(said, "(Unauthorized)") || Contains(said, "must be logged in")) {
    return {ErrorCode::kUnauthorized, "the API server does not accept these credentials: " + essence};
  }
  if (Contains(said, "Unable to connect to the server") || Contains(said, "The connection to the server")) {
    return {ErrorCode::kUnavailable, "no connection to the API server: " + essence};
  }
  if (Contains(said, "field not declared in schema")) {
    return {ErrorCode::kInvalidArgument,
            essence + "; `kubectl lockstep validate` says which field was probably meant"};
  }
  return {ErrorCode::kInternal, essence.empty() ? "kubectl failed without saying why" : essence};
}

}  // namespace lockstep::kubectl_plugin
