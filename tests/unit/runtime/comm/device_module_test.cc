#include "runtime/comm/device_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/forked_process.h"
#include "tests/support/forked_ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::AnyOf;
using testing::ForkedProcess;
using ::testing::HasSubstr;
using testing::kPatience;
using testing::LineChannel;
using ::testing::Optional;

TEST(OpenDevice, SaysInOneLineWhatIsMissing) {
  const auto absent = OpenDevice("/nowhere/liblockstep_cuda.so", 0, 1);
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("/nowhere/liblockstep_cuda.so"));

  const auto foreign = OpenDevice("libz.so.1", 0, 1);
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().message, "libz.so.1 has no lockstep_device_module");
}

// Without cuDNN and the like it cannot be loaded; with the driver it finds no GPU.
TEST(OpenDevice, SaysInOneLineWhyTheLibraryOfThisBuildIsOfNoUse) {
  ForkedProcess child([](LineChannel& parent) {
    const auto device = OpenDevice(LOCKSTEP_CUDA_MODULE, 0, 1);
    parent.Send(device.ok() ? "a device" : device.error().message);
    return device.ok() || device.error().code == ErrorCode::kNotFound ? 0 : 1;
  });
  EXPECT_THAT(child.channel().Receive(kPatience),
              Optional(AnyOf("a device", HasSubstr("cannot open shared object file"),
                             HasSubstr("CUDA finds no GPU"))));
  EXPECT_EQ(child.Wait(kPatience), 0);
}

}  // namespace
}  // namespace lockstep::comm
