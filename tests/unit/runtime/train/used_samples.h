#pragma once
// Which samples were used, according to the ledgers of a test's ranks.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"
#include "runtime/data/sampler.h"

namespace lockstep::train {

class LedgerFolder {
 public:
  LedgerFolder() : path_(std::filesystem::temp_directory_path() / "ledger-XXXXXX") {
    LOCKSTEP_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~LedgerFolder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// step → samples, by the rule of the ledger: for each step the highest round with a commit counts.
inline std::map<int64_t, std::multiset<int64_t>> Used(const std::string& folder) {
  std::vector<Json> records;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream lines(file.path());
    for (std::string line; std::getline(lines, line);) records.push_back(Json::parse(line));
  }
  std::map<int64_t, int64_t> round_of;
  for (const Json& record : records) {
    if (record.at("event") != "commit") continue;
    int64_t& round = round_of[record.at("step").get<int64_t>()];
    round = std::max(round, record.at("round").get<int64_t>());
  }
  std::map<int64_t, std::multiset<int64_t>> used;
  for (const Json& record : records) {
    const auto step = record.at("step").get<int64_t>();
    if (record.at("event") != "contribute" || !round_of.contains(step)) continue;
    if (record.at("round").get<int64_t>() != round_of[step]) continue;
    for (const Json& id : record.at("ids")) used[step].insert(id.get<int64_t>());
  }
  return used;
}

inline void ExpectEachSampleOnce(const std::map<int64_t, std::multiset<int64_t>>& used,
                                 const data::SamplePlan& plan, std::size_t steps) {
  ASSERT_EQ(used.size(), steps);
  for (const auto& [step, samples] : used) {
    const auto planned = plan.Ids(step, 0, plan.CountOf(step));
    EXPECT_EQ(samples, std::multiset<int64_t>(planned.begin(), planned.end())) << "step " << step;
  }
}

}  // namespace lockstep::train
