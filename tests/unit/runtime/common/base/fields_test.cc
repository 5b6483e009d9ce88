#include "runtime/common/base/fields.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

enum class Colour { kRed, kGreen };
[[nodiscard]] constexpr auto WordsOf(Colour) { return std::to_array<std::string_view>({"Red", "Green"}); }

enum class Gear { kFirst, kSecond };

struct Wheel {
  double size = 1;
};

struct Car {
  std::string name;
  Colour colour = Colour::kGreen;
  Gear gear = Gear::kFirst;
  int doors = 0;
  double speed = 0;
  std::vector<Wheel> wheels;
  NumberMap seconds;
};

template <typename A>
void Describe(A& fields, Of<A, Wheel>& wheel) {
  fields.Field("size", wheel.size, {.max = 9});
}
template <typename A>
void Describe(A& fields, Of<A, Car>& car) {
  fields.Field("name", car.name, {.max_length = 8});
  fields.Field("colour", car.colour);
  fields.Number("gear", car.gear, Gear::kSecond);
  fields.Required("doors", car.doors, {.min = 2});
  fields.Field("speed", car.speed);
  fields.Field("wheels", car.wheels, {.max_items = 4});
  fields.Field("seconds", car.seconds, {.min = 0});
}

std::string ErrorOf(const char* message) { return MessageFromJson<Car>(*ParseJson(message)).error().message; }

std::string ViolationsOf(const char* resource) {
  std::vector<std::string> violations;
  (void)ReadFields<Car>(*ParseJson(resource), "spec", violations);
  return Join(violations, "; ");
}

TEST(Fields, OfAMessageAreAllWrittenAndNumbersThatAreNoneAreNull) {
  EXPECT_EQ(
      DumpJson(MessageToJson(Car{.speed = NAN, .seconds = {{"idle", INFINITY}}})),
      R"({"colour":"Green","doors":0,"gear":0,"name":"","seconds":{"idle":null},"speed":null,"wheels":[]})");
}

TEST(Fields, OfAResourceAreLeftOutWhereTheyAreEmpty) {
  EXPECT_EQ(DumpJson(WriteFields(Car{.doors = 4, .speed = NAN, .wheels = {{2.5}}})),
            R"({"colour":"Green","doors":4,"gear":0,"wheels":[{"size":2.5}]})");
}

TEST(Fields, SurviveBothForms) {
  const Car car{.name = "T", .colour = Colour::kRed, .gear = Gear::kSecond, .doors = 2, .wheels = {{3}, {4}}};
  for (const Json& json : {MessageToJson(car), WriteFields(car)}) {
    const auto back = MessageFromJson<Car>(json);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(DumpJson(WriteFields(*back)), DumpJson(WriteFields(car)));
  }
}

// A newer sender may have more fields and words.
TEST(Fields, ThatAreUnknownAreIgnoredInMessagesOnly) {
  const char* newer = R"({"doors": 2, "colour": "Blue", "radio": true})";
  const auto car = MessageFromJson<Car>(*ParseJson(newer));
  ASSERT_TRUE(car.ok()) << car.error().message;
  EXPECT_EQ(car->colour, Colour::kGreen);
  EXPECT_EQ(ViolationsOf(newer),
            R"(spec.colour: must be Red or Green, not "Blue"; spec.radio: unknown field)");
}

TEST(Fields, ThatAreWrongAreNamedWithTheirPaths) {
  EXPECT_EQ(ErrorOf("{}"), "doors: is required");
  EXPECT_EQ(ErrorOf(R"({"doors": 1})"), "doors: must be at least 2, not 1");
  EXPECT_EQ(ErrorOf(R"({"doors": "two"})"), "doors: must be an integer, not \"two\"");
  EXPECT_EQ(ErrorOf(R"({"doors": 2, "gear": 2})"), "gear: must be at most 1, not 2");
  EXPECT_EQ(ErrorOf(R"({"doors": 2, "wheels": [{}, {"size": 10}]})"),
            "wheels[1].size: must be at most 9, not 10");
  EXPECT_EQ(ErrorOf(R"({"doors": 2, "seconds": {"idle": -1}})"), "seconds: must be at least 0, not -1");
}

TEST(Fields, OfAMessageAreTruncatedWhereTheReaderWouldRejectThem) {
  const Car car{.name = "a long name", .doors = 2};
  EXPECT_EQ(MessageFromJson<Car>(MessageToJson(car))->name, Truncate(car.name, 8));
  EXPECT_EQ(WriteFields(car).at("name"), car.name);
}

}  // namespace
}  // namespace lockstep
