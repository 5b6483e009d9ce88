#include "runtime/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>

namespace lockstep::checkpoint {
namespace {

std::string Length(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>((length >> (8 * i)) & 0xFFU);
  return bytes;
}

std::string File(const std::string& header, std::size_t data_bytes) {
  return Length(header.size()) + header + std::string(data_bytes, 'x');
}

Result<SafetensorsHeader> Parse(const std::string& file) { return ParseHeader(file, file.size()); }

std::vector<TensorEntry> AnyTensors() {
  static const std::vector<std::string> kDtypes = {"F32", "F64", "F16", "BF16", "I64",
                                                   "I32", "I16", "I8",  "U8",   "BOOL"};
  std::vector<TensorEntry> tensors;
  const int count = *rc::gen::inRange(0, 6);
  uint64_t offset = 0;
  for (int i = 0; i < count; ++i) {
    TensorEntry tensor{.name = "t" + std::to_string(i) + *rc::gen::string<std::string>(),
                       .dtype = *rc::gen::elementOf(kDtypes),
                       .shape = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 5))};
    if (tensor.shape.size() > 4) tensor.shape.resize(4);
    const uint64_t bytes = *ByteCount(tensor.dtype, tensor.shape);
    tensor.begin = offset;
    tensor.end = offset += bytes;
    tensors.push_back(tensor);
  }
  return tensors;
}

TEST(Safetensors, ReadsWhatItWrote) {
  EXPECT_TRUE(rc::check("the header comes back", [] {
    const auto tensors = AnyTensors();
    const uint64_t bytes = tensors.empty() ? 0 : tensors.back().end;
    const std::string head = EncodeHeader(tensors, {{"format", "pt"}});
    RC_ASSERT(head.size() % 8 == 0);
    const auto parsed = Parse(head + std::string(bytes, 'x'));
    RC_ASSERT(parsed.ok());
    RC_ASSERT(parsed->metadata.at("format") == "pt");
    RC_ASSERT(parsed->data_offset == head.size());
    RC_ASSERT(parsed->tensors.size() == tensors.size());
    for (const TensorEntry& tensor : parsed->tensors) {
      const auto original = std::find_if(tensors.begin(), tensors.end(), [&](const TensorEntry& other) {
        return other.begin == tensor.begin && other.end == tensor.end && other.shape == tensor.shape &&
               other.dtype == tensor.dtype;
      });
      RC_ASSERT(original != tensors.end());
    }
  }));
}

TEST(Safetensors, ReadsNamesOfAnyText) {
  for (const std::string name : {"conv1.weight", "a \"quoted\" one", "größe", "__metadata", "", "a\nb"}) {
    const auto parsed = Parse(EncodeHeader({{name, "U8", {}, 0, 1}}, {}) + "x");
    ASSERT_TRUE(parsed.ok()) << name << parsed.error().ToString();
    EXPECT_EQ(parsed->tensors.front().name, name);
  }
}

// The example of the format's documentation, as another writer lays it out.
TEST(Safetensors, ReadsAFileOfAnotherWriter) {
  const auto parsed = Parse(File(
      R"({"b":{"dtype":"I64","shape":[],"data_offsets":[8,16]},"a":{"dtype":"F16","shape":[1,4],"data_offsets":[0,8]}} )",
      16));
  ASSERT_TRUE(parsed.ok()) << parsed.error().ToString();
  ASSERT_EQ(parsed->tensors.size(), 2U);
  EXPECT_EQ(parsed->tensors[0].name, "a");
  EXPECT_EQ(parsed->tensors[1].shape, std::vector<int64_t>{});
}

struct Hostile {
  const char* name;
  std::string file;
};

void PrintTo(const Hostile& hostile, std::ostream* out) { *out << hostile.name; }

class HostileSafetensors : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileSafetensors, IsDataLoss) {
  const auto parsed = Parse(GetParam().file);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, ErrorCode::kDataLoss) << parsed.error().ToString();
}

std::string One(const std::string& tensor) { return "{\"a\":" + tensor + "}"; }

INSTANTIATE_TEST_SUITE_P(
    All, HostileSafetensors,
    ::testing::Values(
        Hostile{"Empty", ""}, Hostile{"ShorterThanItsLength", "1234567"},
        Hostile{"HeaderLongerThanTheFile", Length(3) + "{}"},
        Hostile{"HeaderOfAlmostAllNumbers", Length(std::numeric_limits<uint64_t>::max()) + "{}"},
        Hostile{"HeaderLengthThatWrapsAround", Length(std::numeric_limits<uint64_t>::max() - 7) + "{}"},
        Hostile{"HeaderOverTheFormatsLimit", Length(100'000'001) + std::string(100'000'001, ' ')},
        Hostile{"NoHeader", File("", 0)}, Hostile{"NotJson", File("{\"a\":", 0)},
        Hostile{"NotAnObject", File("[]", 0)}, Hostile{"NotUtf8", File("{\"\xff\":1}", 0)},
        Hostile{"TensorIsNoObject", File(One("7"), 0)},
        Hostile{"NoShape", File(One(R"({"dtype":"U8","data_offsets":[0,1]})"), 1)},
        Hostile{"NoOffsets", File(One(R"({"dtype":"U8","shape":[1]})"), 1)},
        Hostile{"NoDtype", File(One(R"({"shape":[1],"data_offsets":[0,1]})"), 1)},
        Hostile{"UnknownDtype", File(One(R"({"dtype":"F128","shape":[1],"data_offsets":[0,16]})"), 16)},
        Hostile{"DtypeIsANumber", File(One(R"({"dtype":8,"shape":[1],"data_offsets":[0,1]})"), 1)},
        Hostile{"NegativeExtent", File(One(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})"), 1)},
        Hostile{"FractionalExtent", File(One(R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})"), 1)},
        Hostile{"ExtentTooLargeForAnInteger",
                File(One(R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]})"), 1)},
        Hostile{"ShapeOverflows",
                File(One(R"({"dtype":"U8","shape":[4294967296,4294967296,256],"data_offsets":[0,0]})"), 0)},
        Hostile{"NegativeOffset", File(One(R"({"dtype":"U8","shape":[2],"data_offsets":[-1,1]})"), 1)},
        Hostile{"EndBeforeBegin", File(One(R"({"dtype":"U8","shape":[1],"data_offsets":[1,0]})"), 1)},
        Hostile{"ThreeOffsets", File(One(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1,1]})"), 1)},
        Hostile{"OffsetsUnlikeTheShape", File(One(R"({"dtype":"F32","shape":[1],"data_offsets":[0,1]})"), 1)},
        Hostile{"BeyondTheFile", File(One(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})"), 1)},
        Hostile{"DataLeftOver", File(One(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})"), 2)},
        Hostile{"HoleInFront", File(One(R"({"dtype":"U8","shape":[1],"data_offsets":[1,2]})"), 2)},
        Hostile{"HoleBetween", File(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                                        "b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                                    3)},
        Hostile{"Overlap", File(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                                    "b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                                3)},
        Hostile{"SamePlaceTwice", File(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                                           "b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                                       2)},
        Hostile{"MetadataIsNoObject", File(R"({"__metadata__":[]})", 0)},
        Hostile{"MetadataOfNumbers", File(R"({"__metadata__":{"a":1}})", 0)}),
    [](const auto& test) { return test.param.name; });

TEST(Safetensors, NoByteOfTheHeaderMakesItReadOutside) {
  EXPECT_TRUE(rc::check("a changed file is refused, or read within its bounds", [] {
    const auto tensors = AnyTensors();
    std::string file = EncodeHeader(tensors, {}) + std::string(tensors.empty() ? 0 : tensors.back().end, 'x');
    const auto place = *rc::gen::inRange<std::size_t>(0, file.size());
    file[place] = static_cast<char>(*rc::gen::inRange(0, 256));
    file.resize(*rc::gen::inRange<std::size_t>(place, file.size() + 1));
    const auto parsed = Parse(file);
    if (!parsed.ok()) return RC_ASSERT(parsed.error().code == ErrorCode::kDataLoss);
    for (const TensorEntry& tensor : parsed->tensors) {
      RC_ASSERT(tensor.begin <= tensor.end && parsed->data_offset + tensor.end <= file.size());
    }
  }));
}

}  // namespace
}  // namespace lockstep::checkpoint
