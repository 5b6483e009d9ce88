#include "runtime/common/api/container_resources.h"

#include <gtest/gtest.h>

namespace lockstep::api {
namespace {

TEST(GpusOfPod, AreTheLimitsOfAllItsContainers) {
  const struct {
    const char* pod;
    int gpus;
  } cases[] = {
      {"{}", 0},
      {R"({"spec": {"containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": 4}}}]}})", 0},
      {R"({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}},
                                   {"resources": {"limits": {"memory": "1Gi", "amd.com/gpu": 1}}}]}})",
       3},
      {R"({"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "2"}}}]}})", 0},
      {R"({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-3g.20gb": "1"}}}]}})",
       3},
      {R"({"spec": {"containers": [{"resources": {"limits": {
           "deviceclass.resource.kubernetes.io/gpu.nvidia.com": "2", "deviceclass.resource.kubernetes.io/mig.nvidia.com": "1",
           "deviceclass.resource.kubernetes.io/rdma.example.com": "4", "example.com/nic": 1}}}]}})",
       3},
      {R"({"spec": {"containers": [{"resources": {"claims": [{"name": "gpus"}]}}]}})", 0},
  };
  for (const auto& test : cases) EXPECT_EQ(GpusOfPod(*ParseJson(test.pod)), test.gpus) << test.pod;
}

}  // namespace
}  // namespace lockstep::api
