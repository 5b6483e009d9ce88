#pragma once
// Names of the environment variables that the operator (or `lockstep run`) sets and the worker reads, and of
// those that the supervisor sets for each rank.

#include <array>
#include <string_view>

namespace lockstep::protocol::env {

inline constexpr const char* kConfig = "LOCKSTEP_CONFIG";         // path of the worker config document
inline constexpr const char* kTokenFile = "LOCKSTEP_TOKEN_FILE";  // bearer token for the rendezvous
inline constexpr const char* kPodName = "LOCKSTEP_POD_NAME";
inline constexpr const char* kPodUid = "LOCKSTEP_POD_UID";
inline constexpr const char* kPodIp = "LOCKSTEP_POD_IP";
inline constexpr const char* kNodeName = "LOCKSTEP_NODE_NAME";
inline constexpr const char* kSlot = "LOCKSTEP_SLOT";
inline constexpr const char* kTerminationLog = "LOCKSTEP_TERMINATION_LOG";  // default /dev/termination-log
inline constexpr const char* kRankProgram =
    "LOCKSTEP_RANK_PROGRAM";  // default: lockstep-rank in the folder of lockstep

// Set by `lockstep run`: the folder for logs. Absent in pods.
inline constexpr const char* kRunFolder = "LOCKSTEP_RUN_FOLDER";
// Descriptor of the pipe to which a worker of `lockstep run` writes the output of a program.
inline constexpr const char* kOutputFd = "LOCKSTEP_OUTPUT_FD";

// Set by the supervisor for each rank process.
inline constexpr const char* kControlFd = "LOCKSTEP_CONTROL_FD";  // the rank's end of the local socket
inline constexpr const char* kLocalRank = "LOCKSTEP_LOCAL_RANK";

// For users to set, in spec.worker.template or in the shell of `lockstep run`.
inline constexpr const char* kLogLevel = "LOCKSTEP_LOG_LEVEL";
// Debug option: a folder in which each rank appends what it contributed and committed (sample_ledger.h).
inline constexpr const char* kSampleLedger = "LOCKSTEP_SAMPLE_LEDGER";
// The steps that each rank records, as in 100-104 (train/profile.h).
inline constexpr const char* kProfile = "LOCKSTEP_PROFILE";
inline constexpr std::array<std::string_view, 3> kForUsers = {kLogLevel, kSampleLedger, kProfile};

}  // namespace lockstep::protocol::env
