#include "runtime/launch/program/program_checkpoints.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/launch/program/checkpoint_lookout.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

const std::string kArchiveEnd = std::string("PK\5\6", 4) + std::string(18, '\0');
const std::string kArchive = std::string("PK\3\4", 4) + "weights" + kArchiveEnd;

class ProgramCheckpointsTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& content, std::chrono::seconds changed) const {
    const std::filesystem::path path = folder_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    const timespec time{.tv_sec = changed.count(), .tv_nsec = 0};
    const timespec times[] = {time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  // The name and the step of the newest; "" and -2: none.
  [[nodiscard]] std::pair<std::string, int64_t> Newest(std::chrono::seconds settled = 1000s) const {
    const auto found = NewestCheckpoint(folder_, WallTime(settled));
    if (!found.has_value()) return {"", -2};
    return {std::filesystem::path(found->path).filename().string(), found->step};
  }

  const std::string folder_ = ::testing::TempDir() + "/checkpoints-" + std::to_string(::getpid());
};

using NameAndStep = std::pair<std::string, int64_t>;

TEST_F(ProgramCheckpointsTest, FindsNothingWhereThereIsNothing) {
  EXPECT_EQ(Newest(), NameAndStep("", -2));
  EXPECT_FALSE(NewestCheckpoint(folder_ + "/missing", WallTime(1000s)).has_value());
  Write("notes.txt", "x", 10s);
  Write("runs/events", "x", 10s);
  Write("empty.pt", "", 10s);
  EXPECT_EQ(Newest(), NameAndStep("", -2));
}

TEST_F(ProgramCheckpointsTest, FindsTheTrainersByTheFileThatItWritesLast) {
  Write("checkpoint-20/trainer_state.json", "{\"global_step\": 20}\n", 10s);
  Write("checkpoint-40/model.safetensors", "x", 20s);
  EXPECT_EQ(Newest(), NameAndStep("checkpoint-20", 20));
  Write("checkpoint-40/trainer_state.json", "{\"global_st", 21s);
  EXPECT_EQ(Newest(), NameAndStep("checkpoint-20", 20)) << "a part of the file";
  Write("checkpoint-40/trainer_state.json", "{\"global_step\": 40}\n", 21s);
  EXPECT_EQ(Newest(), NameAndStep("checkpoint-40", 40));
  Write("checkpoint-40/checkpoint-is-incomplete.txt", "x", 22s);
  EXPECT_EQ(Newest(), NameAndStep("checkpoint-20", 20)) << "it is being written again";
}

TEST_F(ProgramCheckpointsTest, FindsThoseOfTorchDistributed) {
  Write("step_100/__0_0.distcp", "x", 10s);
  EXPECT_EQ(Newest(), NameAndStep("", -2));
  Write("step_100/.metadata", "x", 11s);
  EXPECT_EQ(Newest(), NameAndStep("step_100", 100));
  Write(".metadata", "x", 12s);
  EXPECT_EQ(NewestCheckpoint(folder_, WallTime(1000s))->path, folder_) << "the folder itself may be one";
}

TEST_F(ProgramCheckpointsTest, AnArchiveIsCompleteByItsEndAndAnotherFileOnceItHasSettled) {
  Write("old.pt", kArchive, 10s);
  Write("epoch=3-step=1000.ckpt", kArchive.substr(0, 9), 20s);
  EXPECT_EQ(Newest(), NameAndStep("old.pt", -1));
  Write("epoch=3-step=1000.ckpt", kArchive, 20s);
  EXPECT_EQ(Newest(), NameAndStep("epoch=3-step=1000.ckpt", 1000));
  Write("model.safetensors", "header", 30s);
  EXPECT_EQ(Newest(29s), NameAndStep("epoch=3-step=1000.ckpt", 1000)) << "it was just written to";
  EXPECT_EQ(Newest(30s), NameAndStep("model.safetensors", -1));
}

TEST_F(ProgramCheckpointsTest, KnowsTheStepWhereTheNameHasIt) {
  const NameAndStep cases[] = {
      {"global_step300.pt", 300}, {"iter_0000400.pth", 400}, {"500.pt", 500},
      {"epoch_7.pt", -1},         {"step-.pt", -1},          {"step99999999999999999999.pt", -1}};
  int time = 10;
  for (const NameAndStep& wanted : cases) {
    Write(wanted.first, kArchive, std::chrono::seconds(time++));
    EXPECT_EQ(Newest(), wanted);
  }
}

TEST_F(ProgramCheckpointsTest, ALookoutReportsEachCheckpointOnce) {
  Write("step-1.pt", kArchive, 10s);
  CheckpointLookout lookout(folder_);
  lookout.ProgramEnded(1min);
  EXPECT_EQ(lookout.TakeNew()->step, 1);
  EXPECT_FALSE(lookout.TakeNew().has_value());
  lookout.ProgramStarted();
  Write("step-2.pt", kArchive, 20s);
  lookout.ProgramEnded(1min);
  EXPECT_EQ(lookout.TakeNew()->step, 2);
}

}  // namespace
}  // namespace lockstep::launch
