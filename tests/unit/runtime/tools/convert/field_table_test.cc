#include "runtime/tools/convert/field_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/common/base/file.h"
#include "runtime/common/base/strings.h"

namespace lockstep::convert {
namespace {

std::string Row(const Field& field) {
  const std::string ours = field.fate == Fate::kNotNeeded ? "not needed"
                           : field.fate == Fate::kLost    ? "**rejected**"
                                                          : "`" + std::string(field.ours) + "`";
  return "| `" + std::string(field.theirs) + "` | " + ours + " | " + std::string(field.remark) + " |";
}

// The rows of the table below a heading in docs/how-to/migration.md, without its header.
std::vector<std::string> RowsBelow(const std::string& heading) {
  const auto text = ReadFile(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/how-to/migration.md");
  EXPECT_TRUE(text.ok());
  std::vector<std::string> rows;
  bool is_there = false;
  for (const std::string& line : Split(text.ok() ? *text : "", '\n')) {
    if (line.starts_with("## ")) is_there = line == "## " + heading;
    if (is_there && line.starts_with("| `")) rows.push_back(line);
  }
  return rows;
}

TEST(MigrationGuide, HasEveryFieldThatConvertSupports) {
  const struct {
    std::string heading;
    std::span<const Field> fields;
  } tables[] = {{"Fields of the job", JobFields()},
                {"Pod template", TemplateFields()},
                {"Flags of torchrun", LaunchFlags()},
                {"Settings of the rendezvous", RendezvousKeys()}};
  for (const auto& [heading, fields] : tables) {
    std::vector<std::string> expected;
    for (const Field& field : fields) expected.push_back(Row(field));
    EXPECT_EQ(RowsBelow(heading), expected)
        << "docs/how-to/migration.md, below " << heading << ", must have:\n"
        << Join(expected, "\n");
  }
}

}  // namespace
}  // namespace lockstep::convert
