// Every field of every message from another machine or process has limits, and values outside of them are
// rejected.

#include "runtime/common/protocol/message_limits.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "runtime/common/base/fields.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::protocol {
namespace {

using IntLimits = std::numeric_limits<int64_t>;

struct MessageField {
  std::string path;  // a JSON pointer
  std::string key;
  Limits limits;
  bool is_text = false;
  bool is_word = false;  // of an enum
  bool is_list = false;
  bool is_whole = false;  // an integer, or integers
  bool is_required = false;
};

// Lists the fields of a message. A list of messages has one entry, so that its fields are listed as well.
class FieldLister {
 public:
  static constexpr bool kReading = true;

  FieldLister(std::string path, std::vector<MessageField>& fields)
      : path_(std::move(path)), fields_(fields) {}

  template <typename E>
  void Number(std::string_view key, E&, E last) {
    int number = 0;
    Field(key, number, {.min = 0, .max = static_cast<double>(last)});
  }

  template <typename T>
  void Required(std::string_view key, T& value, const Limits& limits) {
    Field(key, value, limits);
    fields_.back().is_required = true;
  }

  template <typename T>
  void Field(std::string_view key, T& value, const Limits& limits = {}) {
    const std::string path = path_ + "/" + std::string(key);
    MessageField field{.path = path, .key = std::string(key), .limits = limits};
    if constexpr (IsOptional<T>::value) {
      return Field(key, value.emplace(), limits);
    } else if constexpr (requires(FieldLister & nested) { Describe(nested, value); }) {
      FieldLister nested(path, fields_);
      Describe(nested, value);
      return;
    } else if constexpr (std::is_same_v<T, bool>) {
      return;
    } else if constexpr (std::is_same_v<T, std::string>) {
      field.is_text = true;
    } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      field.is_list = field.is_whole = true;
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      field.is_list = field.is_text = true;
    } else if constexpr (std::is_same_v<T, std::map<std::string, double>>) {
      value["phase"] = 1;
    } else if constexpr (std::is_enum_v<T>) {
      field.is_word = true;
    } else if constexpr (std::is_arithmetic_v<T>) {
      field.is_whole = !std::is_floating_point_v<T>;
    } else {
      field.is_list = true;
      FieldLister nested(path + "/0", fields_);
      Describe(nested, value.emplace_back());
    }
    fields_.push_back(field);
  }

 private:
  std::string path_;
  std::vector<MessageField>& fields_;
};

// A measurement of the training may be any finite number, and JSON has no others.
bool IsMeasurement(const std::string& key) {
  static constexpr std::array<std::string_view, 7> kMeasurements{
      "epoch", "loss", "learningRate", "gradientNorm", "samplesPerSecond", "accuracy", "flopsPerSample"};
  return std::find(kMeasurements.begin(), kMeasurements.end(), key) != kMeasurements.end();
}

// Values that the field must reject.
std::vector<Json> HostileValues(const MessageField& field) {
  const std::string too_long(field.limits.max_length.value_or(0) + 1, 'x');
  if (field.is_text && !field.is_list) return {too_long, -1};
  if (field.is_word) return {-1};
  std::vector<Json> numbers;
  if (field.limits.min) numbers.emplace_back(static_cast<int64_t>(*field.limits.min) - 1);
  if (field.limits.max) numbers.emplace_back(static_cast<int64_t>(*field.limits.max * 1.0001) + 1);
  if (field.limits.max) numbers.emplace_back(1e300);
  if (field.is_whole && field.limits.max) {
    numbers.insert(numbers.end(), {IntLimits::max(), IntLimits::min(), std::numeric_limits<uint64_t>::max()});
    if (*field.limits.max < 2e9) numbers.emplace_back(2'000'000'000);
  }
  if (field.key == "phaseSeconds") {
    Json many;
    for (int i = 0; i < 65; ++i) many[std::to_string(i)] = 1;
    return {{{"phase", -1}}, {{std::string(65, 'x'), 1}}, many};
  }
  if (!field.is_list) return numbers;
  std::vector<Json> lists;
  if (field.limits.max_items) {
    const Json entry = field.is_text ? Json("") : field.is_whole ? Json(0) : Json::object();
    lists.emplace_back(Json::array_t(*field.limits.max_items + 1, entry));
  }
  if (field.is_text) lists.push_back(Json::array({too_long}));
  for (const Json& number : numbers) lists.push_back(Json::array({number}));
  return lists;
}

template <typename Message>
class MessageLimits : public ::testing::Test {};

using Messages = ::testing::Types<JoinRequest, JoinAnswer, WatchRequest, WatchAnswer, Heartbeat, BrokenReport,
                                  LeaveRequest, FormRequest, FormAnswer, FormationWatch, Ready, Progress,
                                  Usage, PhaseChanged, Broken, Synced, Evaluated, Saved, ProfileAgreed,
                                  SaveFailed, StoreUnavailable, CheckpointDamaged, Finished, Failed>;

class MessageNames {
 public:
  template <typename Message>
  static std::string GetName(int index) {
    std::vector<MessageField> fields;
    FieldLister lister("", fields);
    Message message{};
    Describe(lister, message);
    return std::to_string(index) + "_" + fields.front().key;
  }
};

TYPED_TEST_SUITE(MessageLimits, Messages, MessageNames);

TYPED_TEST(MessageLimits, EveryFieldHasSomeAndIsRefusedOutsideOfThem) {
  std::vector<MessageField> fields;
  FieldLister lister("", fields);
  TypeParam message{};
  Describe(lister, message);
  Json valid = MessageToJson(message);
  for (const MessageField& field : fields) {
    if (field.is_required) valid[Json::json_pointer(field.path)] = 1;
  }
  ASSERT_TRUE(MessageFromJson<TypeParam>(valid).ok()) << MessageFromJson<TypeParam>(valid).error().message;
  for (const MessageField& field : fields) {
    const std::vector<Json> hostile = HostileValues(field);
    EXPECT_TRUE(!hostile.empty() || IsMeasurement(field.key)) << field.path << " has no limits";
    EXPECT_TRUE(!field.is_list || field.limits.max_items) << field.path << " may have any length";
    if (field.is_required) {
      Json without = valid;
      without.erase(field.key);
      EXPECT_EQ(MessageFromJson<TypeParam>(without).error().message, field.key + ": is required");
    }
    for (const Json& value : hostile) {
      Json json = valid;
      json[Json::json_pointer(field.path)] = value;
      const auto parsed = MessageFromJson<TypeParam>(json);
      ASSERT_FALSE(parsed.ok()) << field.path << " may be " << value.dump().substr(0, 60);
      EXPECT_NE(parsed.error().message.find(field.key), std::string::npos)
          << parsed.error().message << " does not name " << field.path;
    }
  }
}

TEST(MessageText, ThatIsTooLongIsCutWhereItIsWritten) {
  BrokenReport report{.reason = std::string(100'000, 'x')};
  const auto back = MessageFromJson<BrokenReport>(MessageToJson(report));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->reason.size(), *limits::kText.max_length);
}

}  // namespace
}  // namespace lockstep::protocol
