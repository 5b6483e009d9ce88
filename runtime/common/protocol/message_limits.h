#pragma once
// Limits of the fields of messages. A sender may be faulty or hostile. With these limits numbers can be
// added, and multiplied by a number of ranks, without overflow. Plain values.

#include "runtime/common/base/limits.h"

namespace lockstep::protocol {

inline constexpr int kMaxMembers = 10'000;        // of a round, as in the limit of spec.worker.replicas
inline constexpr int kMaxRanksPerMember = 1'024;  // `nprocPerNode: cpu` on the largest machines
inline constexpr int kMaxRanks = kMaxMembers * kMaxRanksPerMember;

namespace limits {

inline constexpr Limits kName{.max_length = 253};  // names of Kubernetes objects; also uids, hosts, keys
inline constexpr Limits kWord{.max_length = 64};
inline constexpr Limits kText{.max_length = 16'384};  // for people; also URIs of stores
// Standbys have slots, too.
inline constexpr Limits kSlot{.min = 0, .max = 2 * kMaxMembers - 1};
inline constexpr Limits kRanksOfMember{.min = 1, .max = kMaxRanksPerMember};
inline constexpr Limits kRank{.min = 0, .max = kMaxRanks - 1};
inline constexpr Limits kRanks{.min = 0, .max = kMaxRanks - 1, .max_items = kMaxRanksPerMember};
inline constexpr Limits kWorld{.min = 0, .max = kMaxRanks};
inline constexpr Limits kPort{.min = 1, .max = 65'535};
inline constexpr Limits kPortOrNone{.min = 0, .max = 65'535};
inline constexpr Limits kRound{.min = 0, .max = 1e15};
inline constexpr Limits kStep{.min = -1, .max = 1e15};  // -1: none
inline constexpr Limits kCount{.min = 0, .max = 1e15};
inline constexpr Limits kBytes{.min = 0, .max = 1e18};
inline constexpr Limits kSeconds{.min = 0, .max = 1e9};
inline constexpr Limits kUnixSeconds{.min = 0, .max = 1e11};
inline constexpr Limits kExitCode{.min = 0, .max = 255};
inline constexpr Limits kHosts{.max_items = kMaxMembers, .max_length = 253};
inline constexpr Limits kOfEachRank{.max_items = kMaxRanksPerMember};
// For each entry; max_length is that of its name.
inline constexpr Limits kPhaseSeconds{.min = 0, .max = 1e9, .max_items = 64, .max_length = 64};

}  // namespace limits
}  // namespace lockstep::protocol
