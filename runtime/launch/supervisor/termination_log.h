#pragma once
// The file in which the kubelet, and by it the operator, finds why a worker failed, or its last report. Without
// such a file, which is an empty path, nothing is written.

#include <string>

#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::launch {

void WriteReasonOfEnd(const std::string& file, const std::string& reason, const std::string& last_lines);
// A message that the user's program has written is kept.
void WriteLastReport(const std::string& file, const protocol::Heartbeat& heartbeat);

}  // namespace lockstep::launch
