#include "runtime/train/step/sample_ledger.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/fake_clock.h"

namespace lockstep::train {
namespace {

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "ledger-XXXXXX") {
    LOCKSTEP_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(SampleLedger, WritesOneLineForEachEventAndAppendsAfterARestart) {
  const Folder folder;
  const testing::FakeClock clock;
  {
    SampleLedger ledger(folder.path(), "pod-1", clock);
    ledger.EnterRound(3, 1);
    ledger.Contribute(7, {4, 2});
    ledger.Commit(7);
  }
  SampleLedger again(folder.path(), "pod-1", clock);
  again.EnterRound(4, 1);
  again.Contribute(8, {});
  const Result<std::string> text = ReadFile(folder.path() + "/pod-1-1.jsonl");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text,
            "{\"event\":\"contribute\",\"ids\":[4,2],\"rank\":1,\"round\":3,\"step\":7}\n"
            "{\"event\":\"commit\",\"rank\":1,\"round\":3,\"step\":7,\"time\":1767225600.0}\n"
            "{\"event\":\"contribute\",\"ids\":[],\"rank\":1,\"round\":4,\"step\":8}\n");
}

TEST(SampleLedger, WritesNothingWithoutAFolder) {
  const testing::FakeClock clock;
  SampleLedger ledger("", "pod-1", clock);
  ledger.EnterRound(1, 0);
  ledger.Contribute(0, {1});
  ledger.Commit(0);
  EXPECT_FALSE(ledger.enabled());
}

}  // namespace
}  // namespace lockstep::train
