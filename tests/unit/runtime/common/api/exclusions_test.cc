// What cannot be combined in spec.training.

#include "runtime/common/api/exclusions.h"

#include <gtest/gtest.h>

#include "tests/unit/runtime/common/api/violation_case.h"

namespace lockstep::api {
namespace {

class ExclusionsTest : public testing::TestWithParam<ViolationCase> {};

TEST_P(ExclusionsTest, NameTheFieldAndWhatExcludesIt) { ExpectTheViolation(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Rules, ExclusionsTest,
    testing::Values(
        ViolationCase{
            "CompressionOfTheSameBits", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "determinism": "World", "sync": {"compression": "bf16"}})",
            "spec.training.sync.compression: must be absent"},
        ViolationCase{
            "CompressionOfLocalsgd", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "localsgd", "sync": {"compression": "bf16"}})",
            "spec.training.sync.compression: must be absent where strategy is localsgd"},
        ViolationCase{
            "SameBitsOfLocalsgd", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "localsgd", "determinism": "World"})",
            "spec.training.determinism: must be None where strategy is localsgd"},
        ViolationCase{
            "AverageOfLocalsgd", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "localsgd", "optimizer": {"weightAverage": {}}})",
            "spec.training.optimizer.weightAverage: must be absent where strategy is localsgd"},
        ViolationCase{
            "CompressionOfAsync", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "async", "sync": {"compression": "bf16"}})",
            "spec.training.sync.compression: must be absent where strategy is async"},
        ViolationCase{
            "SameBitsOfAsync", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "async", "determinism": "World"})",
            "spec.training.determinism: must be None where strategy is async"},
        ViolationCase{
            "BalanceOfAsync", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "async", "balance": "Speed"})",
            "spec.training.balance: must be Equal where strategy is async"},
        ViolationCase{
            "SameBitsOfStages", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "pipeline", "determinism": "World"})",
            "spec.training.determinism: must be None where strategy is pipeline"},
        ViolationCase{
            "SameBitsOfShardedLayers", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "fsdp", "determinism": "World"})",
            "spec.training.determinism: must be None where strategy is fsdp"},
        ViolationCase{
            "CompressionOfShardedLayers", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "fsdp", "sync": {"compression": "bf16"}})",
            "spec.training.sync.compression: must be absent where strategy is fsdp"},
        ViolationCase{"RecordsSkippedInStages", "/spec/training",
                      R"({"model": {"name": "mlp"}, "globalBatchSize": 8, "steps": 8, "strategy": "pipeline",
                 "data": {"format": "csv", "path": "/d", "csv": {"labelColumn": "y"}, "onCorruptRecord": "Skip"}})",
                      "spec.training.data.onCorruptRecord: must be Fail where strategy is pipeline"},
        ViolationCase{
            "SharesBySpeedOfStages", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "hybrid", "balance": "Speed"})",
            "spec.training.balance: must be Equal where strategy is hybrid"},
        ViolationCase{
            "CompressionOfStages", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "hybrid", "sync": {"compression": "fp16"}})",
            "spec.training.sync.compression: must be absent where strategy is hybrid"},
        ViolationCase{
            "GraphOfStages", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "hybrid", "cudaGraph": true})",
            "spec.training.cudaGraph: must be false where strategy is hybrid"},
        ViolationCase{
            "GraphWithTheSameBits", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "determinism": "World", "cudaGraph": true})",
            "spec.training.determinism: must be None where cudaGraph is true"},
        ViolationCase{
            "GraphWithSharesBySpeed", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "balance": "Speed", "cudaGraph": true})",
            "spec.training.balance: must be Equal where cudaGraph is true"},
        ViolationCase{
            "GraphOfBatchesOfAnySize", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "csv", "path": "/d", "csv": {"labelColumn": "y"},
                 "onCorruptRecord": "Skip"}, "globalBatchSize": 8, "steps": 8, "cudaGraph": true})",
            "spec.training.data.onCorruptRecord: must be Fail where cudaGraph is true"},
        ViolationCase{
            "CheckpointedLayersOfAModule", "/spec/training",
            R"({"model": {"name": "torchscript", "torchscript": {"path": "/m.pt"}}, "globalBatchSize": 8,
                 "data": {"format": "synthetic"}, "steps": 8, "gradientCheckpointing": true})",
            "spec.training.gradientCheckpointing: must be false where model.name is torchscript"},
        ViolationCase{
            "CheckpointedLayersInAGraph", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "cudaGraph": true, "gradientCheckpointing": true})",
            "spec.training.gradientCheckpointing: must be false where cudaGraph is true"},
        ViolationCase{"SameBitsOfDevices", "/spec", OneProcess(R"({"training": {"determinism": "World"}})"),
                      "spec.training.determinism: must be None where strategy is dataparallel"},
        ViolationCase{"SharesBySpeedOfDevices", "/spec", OneProcess(R"({"training": {"balance": "Speed"}})"),
                      "spec.training.balance: must be Equal where strategy is dataparallel"},
        ViolationCase{"CompressionOfDevices", "/spec",
                      OneProcess(R"({"training": {"sync": {"compression": "bf16"}}})"),
                      "spec.training.sync.compression: must be absent where strategy is dataparallel"},
        ViolationCase{
            "TorchscriptOnDevices", "/spec",
            OneProcess(R"({"training": {"model": {"name": "torchscript", "torchscript": {"path": "m.pt"}}}})",
                       "modelparallel"),
            "spec.training.model.name: must not be torchscript where strategy is modelparallel"},
        ViolationCase{"GraphOnDevices", "/spec",
                      OneProcess(R"({"training": {"cudaGraph": true}})", "modelparallel"),
                      "spec.training.cudaGraph: must be false where strategy is modelparallel"},
        ViolationCase{
            "StagesOfAModule", "/spec/training",
            R"({"model": {"name": "torchscript", "torchscript": {"path": "/m.pt"}}, "data": {"format": "synthetic"},
                 "globalBatchSize": 8, "steps": 8, "strategy": "pipeline"})",
            "spec.training.model.name: must not be torchscript where strategy is pipeline: a module does not "
            "say "
            "what its layers are; use ddp or zero1"},
        ViolationCase{
            "ElementsOfMuon", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "fsdp", "optimizer": {"name": "muon", "momentum": 0.95}})",
            "spec.training.optimizer.name: must not be lamb or muon where strategy is fsdp"},
        ViolationCase{
            "ElementsOfLamb", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "fsdp", "optimizer": {"name": "lamb"}})",
            "spec.training.optimizer.name: must not be lamb or muon where strategy is fsdp: it needs whole "
            "parameters, which are divided by elements; use zero1 or ddp"}),
    [](const testing::TestParamInfo<ViolationCase>& test_case) { return test_case.param.name; });

}  // namespace
}  // namespace lockstep::api
