#include "runtime/common/protocol/rank_control.h"

#include "runtime/common/base/fields.h"

namespace lockstep::protocol {
namespace {

template <typename T>
constexpr std::string_view kType{};
template <>
constexpr std::string_view kType<Ready> = "ready";
template <>
constexpr std::string_view kType<Progress> = "progress";
template <>
constexpr std::string_view kType<Usage> = "usage";
template <>
constexpr std::string_view kType<PhaseChanged> = "phase";
template <>
constexpr std::string_view kType<Broken> = "broken";
template <>
constexpr std::string_view kType<Synced> = "synced";
template <>
constexpr std::string_view kType<Evaluated> = "evaluated";
template <>
constexpr std::string_view kType<Saved> = "saved";
template <>
constexpr std::string_view kType<ProfileAgreed> = "profileAgreed";
template <>
constexpr std::string_view kType<SaveFailed> = "saveFailed";
template <>
constexpr std::string_view kType<StoreUnavailable> = "storeAway";
template <>
constexpr std::string_view kType<CheckpointDamaged> = "checkpointDamaged";
template <>
constexpr std::string_view kType<Finished> = "finished";
template <>
constexpr std::string_view kType<Failed> = "failed";
template <>
constexpr std::string_view kType<Pong> = "pong";
template <>
constexpr std::string_view kType<RankAssignment> = "assignment";
template <>
constexpr std::string_view kType<RoundOver> = "roundOver";
template <>
constexpr std::string_view kType<Stop> = "stop";
template <>
constexpr std::string_view kType<Ping> = "ping";
template <>
constexpr std::string_view kType<Save> = "save";
template <>
constexpr std::string_view kType<ProfileWanted> = "profileWanted";
template <>
constexpr std::string_view kType<NodeDeparts> = "nodeDeparts";
template <>
constexpr std::string_view kType<KillProgram> = "killProgram";
template <>
constexpr std::string_view kType<StartFirst> = "startFirst";

template <typename Variant>
std::string EncodeAny(const Variant& message) {
  return std::visit(
      [](const auto& alternative) {
        Json json = MessageToJson(alternative);
        json["type"] = kType<std::decay_t<decltype(alternative)>>;
        return DumpJson(json);
      },
      message);
}

template <typename Variant, std::size_t index = 0>
Result<Variant> DecodeAny(const std::string& type, const Json& json) {
  if constexpr (index == std::variant_size_v<Variant>) {
    return Error{ErrorCode::kInvalidArgument, "unknown control message \"" + type + "\""};
  } else {
    using Alternative = std::variant_alternative_t<index, Variant>;
    if (type != kType<Alternative>) return DecodeAny<Variant, index + 1>(type, json);
    LOCKSTEP_TRY(Alternative message, MessageFromJson<Alternative>(json));
    return Variant(std::move(message));
  }
}

template <typename Variant>
Result<Variant> DecodeLine(const std::string& line) {
  LOCKSTEP_TRY(const Json json, ParseJson(line));
  return DecodeAny<Variant>(StringAt(json, {"type"}), json);
}

}  // namespace

std::string Encode(const FromRank& message) { return EncodeAny(message); }
std::string Encode(const ToRank& message) { return EncodeAny(message); }
Result<FromRank> DecodeFromRank(const std::string& line) { return DecodeLine<FromRank>(line); }
Result<ToRank> DecodeToRank(const std::string& line) { return DecodeLine<ToRank>(line); }

}  // namespace lockstep::protocol
