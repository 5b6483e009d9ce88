#include "runtime/checkpoint/manifest.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <functional>
#include <set>

namespace lockstep::checkpoint {
namespace {

const std::string kSomeHash(64, 'a');

Manifest Sound() {
  Manifest manifest{.job_uid = "uid-1",
                    .job_name = "mnist",
                    .step = 120,
                    .epoch = 2.5,
                    .round = 7,
                    .world = 2,
                    .strategy = "ddp",
                    .time = "2026-01-02T03:04:05Z",
                    .shards = {},
                    .training = {{"seed", 7}, {"model", {{"name", "mlp"}}}}};
  manifest.shards.push_back({ShardName(0, {"uid-1", 2, 7}),
                             100,
                             kSomeHash,
                             {{"a", "F32", {2, 3}, 60, 24}},
                             64,
                             "0123456789abcdef"});
  manifest.shards.push_back(
      {ShardName(1, {"uid-1", 2, 7}), 90, kSomeHash, {{"b", "I64", {}, 80, 8}, {"c", "F32", {0}, 88, 0}}});
  return manifest;
}

void ExpectEqual(const ShardEntry& found, const ShardEntry& expected) {
  EXPECT_EQ(found.name, expected.name);
  EXPECT_EQ(found.bytes, expected.bytes);
  EXPECT_EQ(found.sha256, expected.sha256);
  EXPECT_EQ(found.tensors, expected.tensors);
  EXPECT_EQ(found.block_bytes, expected.block_bytes);
  EXPECT_EQ(found.block_crc32, expected.block_crc32);
}

TEST(Manifest, ReadsWhatItWrote) {
  const auto parsed = ParseManifest(EncodeManifest(Sound()));
  ASSERT_TRUE(parsed.ok()) << parsed.error().ToString();
  const Manifest expected = Sound();
  EXPECT_EQ(parsed->format_version, 1);
  EXPECT_EQ(parsed->job_uid, expected.job_uid);
  EXPECT_EQ(parsed->job_name, expected.job_name);
  EXPECT_EQ(parsed->step, expected.step);
  EXPECT_EQ(parsed->epoch, expected.epoch);
  EXPECT_EQ(parsed->round, expected.round);
  EXPECT_EQ(parsed->world, expected.world);
  EXPECT_EQ(parsed->strategy, expected.strategy);
  EXPECT_EQ(parsed->time, expected.time);
  EXPECT_EQ(parsed->training, expected.training);
  ASSERT_EQ(parsed->shards.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) ExpectEqual(parsed->shards[i], expected.shards[i]);
}

TEST(Manifest, ReadsTheEvaluationsThatItWrote) {
  Manifest manifest = Sound();
  manifest.evaluations.step = 100;
  manifest.evaluations.newest = 0.5;
  manifest.evaluations.best = 0.75;
  manifest.evaluations.without_improvement = 3;
  const auto parsed = ParseManifest(EncodeManifest(manifest));
  ASSERT_TRUE(parsed.ok()) << parsed.error().ToString();
  EXPECT_EQ(parsed->evaluations.step, 100);
  EXPECT_EQ(parsed->evaluations.newest, 0.5);
  EXPECT_EQ(parsed->evaluations.best, 0.75);
  EXPECT_EQ(parsed->evaluations.without_improvement, 3);
}

TEST(Manifest, ReadsOneOfALaterVersionOfTheSameFormat) {
  Json json = *ParseJson(EncodeManifest(Sound()));
  json["somethingNew"] = {1, 2};
  EXPECT_TRUE(ParseManifest(DumpJson(json)).ok());
  json.erase("epoch");
  EXPECT_EQ(ParseManifest(DumpJson(json))->epoch, -1) << "of an earlier version";
  for (Json& shard : json["shards"]) {
    shard.erase("blockBytes");
    shard.erase("blockCrc32");
  }
  EXPECT_EQ(ParseManifest(DumpJson(json))->shards.at(0).block_bytes, 0) << "of an earlier version";
}

TEST(Manifest, OfAnotherFormatIsUnsupported) {
  Json json = *ParseJson(EncodeManifest(Sound()));
  json["formatVersion"] = 2;
  const auto parsed = ParseManifest(DumpJson(json));
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(parsed.error().message.find('2'), std::string::npos);
}

struct Damage {
  const char* name;
  std::function<void(Json&)> apply;
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class DamagedManifest : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedManifest, IsDataLoss) {
  Json json = *ParseJson(EncodeManifest(Sound()));
  GetParam().apply(json);
  const auto parsed = ParseManifest(DumpJson(json));
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, ErrorCode::kDataLoss) << parsed.error().ToString();
}

Damage Without(const char* name, const char* key) {
  return {name, [key](Json& json) { json.erase(key); }};
}
Damage With(const char* name, const char* place, const Json& value) {
  return {name, [place, value](Json& json) { json[Json::json_pointer(place)] = value; }};
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedManifest,
    ::testing::Values(
        Without("NoFormatVersion", "formatVersion"), Without("NoJobUid", "jobUid"), Without("NoStep", "step"),
        Without("NoRound", "round"), Without("NoWorld", "world"), Without("NoShards", "shards"),
        With("FormatVersionIsText", "/formatVersion", "1"),
        With("FormatVersionIsAFraction", "/formatVersion", 1.5), With("JobUidIsANumber", "/jobUid", 3),
        With("StepIsText", "/step", "120"), With("StepIsAFraction", "/step", 1.5),
        With("StepIsNegative", "/step", -1), With("StepIsTooLarge", "/step", uint64_t{1} << 63U),
        With("RoundIsNegative", "/round", -1), With("WorldIsZero", "/world", 0),
        With("WorldOfMoreShards", "/world", 3), With("WorldIsTooLarge", "/world", int64_t{1} << 32U),
        With("ShardsAreAnObject", "/shards", Json::object()), With("ShardIsANumber", "/shards/0", 5),
        With("ShardHasNoName", "/shards/0/name", ""),
        With("ShardInAnotherFolder", "/shards/0/name", "../step-000000000001/x"),
        With("ShardIsAnAbsolutePath", "/shards/0/name", "/etc/passwd"),
        With("ShardIsTheFolderAbove", "/shards/0/name", ".."),
        With("ShardIsTheFolder", "/shards/0/name", "."), With("ShardOfABackslash", "/shards/0/name", "..\\x"),
        With("ShardTwice", "/shards/0/name", ShardName(1, {"uid-1", 2, 7})),
        With("ShardOfNoBytes", "/shards/0/bytes", 0), With("ShardOfNegativeBytes", "/shards/0/bytes", -5),
        With("HashTooShort", "/shards/0/sha256", "abc"),
        With("HashOfOtherLetters", "/shards/0/sha256", std::string(64, 'g')),
        With("HashMissing", "/shards/0/sha256", nullptr), With("TensorIsText", "/shards/0/tensors/0", "a"),
        With("TensorHasNoName", "/shards/0/tensors/0/name", ""),
        With("TensorTwice", "/shards/0/tensors/0/name", "b"),
        With("TensorHasNoDtype", "/shards/0/tensors/0/dtype", ""),
        With("TensorOfAnotherDtype", "/shards/0/tensors/0/dtype", "F64"),
        With("TensorOfAnotherShape", "/shards/0/tensors/0/shape/0", 3),
        With("TensorWhoseShapeOverflows", "/shards/0/tensors/0/shape", Json{INT64_MAX, INT64_MAX}),
        With("BlocksOfNegativeBytes", "/shards/0/blockBytes", -64),
        With("BlocksOfNoBytes", "/shards/0/blockBytes", 0),
        With("BlocksOfAnotherNumber", "/shards/0/blockBytes", 32),
        With("BlocksOfOneByte", "/shards/0/blockBytes", 1),
        With("BlockSumOfOtherLetters", "/shards/0/blockCrc32", "0123456789ABCDEF"),
        With("BlockSumsMissing", "/shards/0/blockCrc32", ""),
        With("TensorOfNegativeExtent", "/shards/0/tensors/0/shape/0", -2),
        With("TensorOfWrongExtent", "/shards/0/tensors/0/shape/0", "2"),
        With("TensorOfNegativeOffset", "/shards/0/tensors/0/offset", -1),
        With("TensorOfNegativeBytes", "/shards/0/tensors/0/bytes", -1),
        With("TensorBeyondTheShard", "/shards/0/tensors/0/offset", 77),
        With("TensorWhoseEndOverflows", "/shards/0/tensors/0/bytes", INT64_MAX)),
    [](const auto& test) { return test.param.name; });

TEST(Manifest, CutAnywhereIsDataLoss) {
  const std::string text = EncodeManifest(Sound());
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    const auto parsed = ParseManifest(text.substr(0, length));
    ASSERT_FALSE(parsed.ok()) << length;
    ASSERT_EQ(parsed.error().code, ErrorCode::kDataLoss) << length;
  }
}

TEST(Manifest, OtherJsonIsDataLoss) {
  for (const char* text :
       {"null", "[]", "7", "\"formatVersion\"", "{}", "{\"formatVersion\":null}", "\xff"}) {
    const auto parsed = ParseManifest(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kDataLoss) << text;
  }
}

TEST(Manifest, AnyByteMayChange) {
  EXPECT_TRUE(rc::check("the manifest is refused or still sound", [] {
    std::string text = EncodeManifest(Sound());
    text[*rc::gen::inRange<std::size_t>(0, text.size())] = static_cast<char>(*rc::gen::inRange(0, 256));
    const auto parsed = ParseManifest(text);
    if (parsed.ok()) RC_ASSERT(ParseManifest(EncodeManifest(*parsed)).ok());
  }));
}

TEST(ShardEntryText, ReadsWhatItWroteAndNothingElse) {
  const ShardEntry entry = Sound().shards[1];
  const auto parsed = ParseShardEntry(EncodeShardEntry(entry));
  ASSERT_TRUE(parsed.ok()) << parsed.error().ToString();
  ExpectEqual(*parsed, entry);
  EXPECT_FALSE(ParseShardEntry("").ok());
  EXPECT_FALSE(ParseShardEntry("{}").ok());
  EXPECT_FALSE(ParseShardEntry("[]").ok());
}

TEST(ShardEntryText, OfAShardWithoutBytesIsRejected) {
  ShardEntry entry{.name = ShardName(0, {"uid-1", 1, 7}), .bytes = 1, .sha256 = kSomeHash};
  EXPECT_TRUE(ParseShardEntry(EncodeShardEntry(entry)).ok());
  entry.bytes = 0;
  EXPECT_FALSE(ParseShardEntry(EncodeShardEntry(entry)).ok());
}

TEST(IsOfModel, DistinguishesWeightsFromWhatOnlyTrainingNeeds) {
  for (const char* name : {"conv1.weight", "bn.running_mean", "optimizers.weight", "loss_scale.weight"})
    EXPECT_TRUE(IsOfModel(name)) << name;
  for (const char* name : {"optimizer.momentum.conv1.weight", "outer.momentum.conv1.weight", "loss_scale"})
    EXPECT_FALSE(IsOfModel(name)) << name;
}

TEST(StepFolder, ComesBackAsTheStep) {
  EXPECT_EQ(FolderOfStep(120), "step-000000000120");
  for (const int64_t step : {int64_t{0}, int64_t{7}, int64_t{999'999'999'999}, INT64_MAX}) {
    EXPECT_EQ(StepOfFolder(FolderOfStep(step)), step);
  }
}

// A folder that FolderOfStep would name differently is not ours: its contents could not be found again.
TEST(StepFolder, OtherNamesAreNoSteps) {
  for (const char* name :
       {"", "step-", "step-5", "step-00000000000x", "step-000000000005 ", "step--00000000005",
        "step-0000000000005", "Step-000000000005", "step-99999999999999999999", "logs"}) {
    EXPECT_EQ(StepOfFolder(name), -1) << name;
  }
}

TEST(ShardName, TellsSavesOfOneStepApart) {
  const std::string name = ShardName(0, {"uid-1", 2, 7});
  EXPECT_EQ(name, "shard-00000-of-00002.round-7.job-4a49acf8a6bd.safetensors");
  std::set<std::string> names = {name, ShardName(1, {"uid-1", 2, 7})};
  for (const ShardSet& other : {ShardSet{"uid-2", 2, 7}, ShardSet{"uid-1", 1, 7}, ShardSet{"uid-1", 2, 70},
                                ShardSet{"uid-1", 2, 7, 1}, ShardSet{"uid-1", 2, 7, 11}}) {
    names.insert(ShardName(0, other));
    EXPECT_FALSE(IsOneOf(other, name));
    EXPECT_TRUE(IsOneOf(other, ShardName(1, other)));
    EXPECT_EQ(IsOfRound(ShardName(0, other), 7), other.round == 7);
  }
  EXPECT_EQ(names.size(), 7U);
}

TEST(ShardName, SaysOfWhichRoundItIs) {
  EXPECT_TRUE(IsOfRound(ShardName(0, {"uid-1", 2, 7}), 7));
  for (const int64_t round : {0, 17, 77})
    EXPECT_FALSE(IsOfRound(ShardName(0, {"uid-1", 2, round}), 7)) << round;
}

}  // namespace
}  // namespace lockstep::checkpoint
