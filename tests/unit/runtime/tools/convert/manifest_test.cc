#include "runtime/tools/convert/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/common/base/file.h"
#include "runtime/tools/cli/manifest_file.h"

namespace lockstep::convert {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kFolder =
    std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/unit/runtime/tools/convert/pytorchjobs";

std::string ReadText(const std::filesystem::path& path) {
  const auto text = ReadFile(path.string());
  EXPECT_TRUE(text.ok()) << path;
  return text.ok() ? *text : "";
}

std::string Report(const ConvertedManifest& converted) {
  std::string report;
  for (const auto& [object, notice] : converted.notices) {
    report += (notice.severity == Severity::kError ? "error: " : "warning: ") + object + ": " + notice.path +
              ": " + notice.text + "\n";
  }
  return report;
}

// pytorchjobs/NAME.yaml is converted to pytorchjobs/becomes/NAME.yaml with the messages in
// pytorchjobs/becomes/NAME.txt.
TEST(ConvertManifest, TurnsRealJobsIntoWhatIsExpected) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (!entry.is_regular_file()) continue;
    ++count;
    const auto converted = ConvertManifest(ReadText(entry.path()));
    ASSERT_TRUE(converted.ok()) << entry.path() << converted.error().message;
    const std::filesystem::path expected = kFolder / "becomes" / entry.path().filename();
    EXPECT_EQ(converted->text, ReadText(expected)) << entry.path();
    EXPECT_EQ(Report(*converted), ReadText(std::filesystem::path(expected).replace_extension(".txt")))
        << entry.path();
    for (const Json& job : converted->jobs)
      EXPECT_THAT(cli::CheckManifest(job).problems, IsEmpty()) << entry.path();
  }
  EXPECT_EQ(count, 5);
}

constexpr const char* kJob = R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: a}
spec:
  pytorchReplicaSpecs:
    Worker:
      template: {spec: {containers: [{name: pytorch, image: i, command: [python3, t.py]}]}}
)";

TEST(ConvertManifest, PassesOtherObjectsOnAsTheyAreWritten) {
  const std::string other = "# a comment\nkind:   Service\nmetadata: {name: b}\n";
  const auto converted = ConvertManifest(other + "---\n" + kJob + "---\n" + other);
  ASSERT_TRUE(converted.ok());
  EXPECT_TRUE(converted->text.starts_with(other + "---\napiVersion: lockstep.dev/v1alpha1\n"))
      << converted->text;
  EXPECT_TRUE(converted->text.ends_with("---\n" + other)) << converted->text;
  EXPECT_THAT(Report(*converted), HasSubstr("warning: Service b: kind: is passed on as it is\n"));
}

TEST(ConvertManifest, TakesTheListThatKubectlPrints) {
  const auto converted = ConvertManifest(
      R"({"kind": "List", "items": [
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": {"pytorchReplicaSpecs": {}}},
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "b"}, "spec": {"pytorchReplicaSpecs": {}}}]})");
  ASSERT_TRUE(converted.ok());
  EXPECT_EQ(converted->jobs.size(), 2U);
}

TEST(ConvertManifest, RefusesWhatHoldsNoJob) {
  const auto nothing = ConvertManifest("kind: TFJob\napiVersion: kubeflow.org/v1\n");
  ASSERT_FALSE(nothing.ok());
  EXPECT_THAT(nothing.error().message, HasSubstr("no PyTorchJob of kubeflow.org/v1"));
  std::string old = kJob;
  old.replace(old.find("/v1"), 3, "/v1beta2");
  EXPECT_THAT(Report(*ConvertManifest(old)),
              HasSubstr("error: PyTorchJob a: apiVersion: must be kubeflow.org/v1"));
}

}  // namespace
}  // namespace lockstep::convert
