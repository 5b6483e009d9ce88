#include "runtime/launch/supervisor/instance_metadata.h"

#include <gtest/gtest.h>

#include "tests/support/fake_transport.h"

namespace lockstep::launch {
namespace {

using protocol::InstanceMetadata;
using protocol::NodeDeparts;

class InstanceMetadataTest : public ::testing::Test {
 protected:
  // The service has these objects, by path without the query, and needs the header of its cloud.
  Result<std::optional<NodeDeparts>> Look(InstanceMetadata cloud,
                                          std::map<std::string, std::string> objects) {
    service_.answer = [objects = std::move(objects)](const http::Request& request) -> Result<http::Response> {
      const auto found = objects.find(request.target.substr(0, request.target.find('?')));
      if (found == objects.end()) return http::Response{.status = 404};
      return http::Response{.status = 200, .body = found->second};
    };
    return LookForDeparture(cloud, service_, {});
  }

  testing::FakeTransport service_;
};

constexpr const char* kAwsToken = "/latest/api/token";
constexpr const char* kAwsAction = "/latest/meta-data/spot/instance-action";
constexpr const char* kAzureName = "/metadata/instance/compute/name";
constexpr const char* kAzureEvents = "/metadata/scheduledevents";

// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
TEST_F(InstanceMetadataTest, AwsSaysWhenASpotMachineIsTakenAway) {
  EXPECT_FALSE((*Look(InstanceMetadata::kAws, {{kAwsToken, "t"}})).has_value());
  const auto found =
      Look(InstanceMetadata::kAws,
           {{kAwsToken, "t"}, {kAwsAction, R"({"action": "terminate", "time": "2017-09-18T08:22:00Z"})"}});
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->reason, "AWS: spot interruption: terminate");
  EXPECT_EQ((*found)->deadline, 1505722920);
  EXPECT_EQ(service_.requests.front().method, "PUT");
  EXPECT_EQ(service_.requests.back().headers.at("X-aws-ec2-metadata-token"), "t");
}

// https://cloud.google.com/compute/docs/instances/create-use-spot
TEST_F(InstanceMetadataTest, GcpSaysThatAMachineIsPreempted) {
  const std::string path = "/computeMetadata/v1/instance/preempted";
  EXPECT_FALSE((*Look(InstanceMetadata::kGcp, {{path, "FALSE"}})).has_value());
  const auto found = Look(InstanceMetadata::kGcp, {{path, "TRUE"}});
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->deadline, 0) << "not known";
  EXPECT_EQ(service_.requests.back().headers.at("Metadata-Flavor"), "Google");
}

// https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
TEST_F(InstanceMetadataTest, AzureSaysItOfThisMachine) {
  const auto events = [](const std::string& type, const std::string& machine) {
    return R"({"DocumentIncarnation": 1, "Events": [{"EventId": "e", "EventType": ")" + type +
           R"(", "ResourceType": "VirtualMachine", "Resources": [")" + machine +
           R"("], "EventStatus": "Scheduled", "NotBefore": "Mon, 19 Sep 2022 18:29:47 GMT"}]})";
  };
  const auto look = [&](const std::string& text) {
    return *Look(InstanceMetadata::kAzure, {{kAzureName, "vm-1"}, {kAzureEvents, text}});
  };
  const auto found = look(events("Preempt", "vm-1"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->reason, "Azure: scheduled event Preempt");
  EXPECT_EQ(found->deadline, 1663612187);
  EXPECT_FALSE(look(events("Preempt", "vm-2")).has_value()) << "of another machine of its scale set";
  EXPECT_FALSE(look(events("Freeze", "vm-1")).has_value()) << "a pause of seconds";
  EXPECT_FALSE(look(R"({"DocumentIncarnation": 1, "Events": []})").has_value());
}

TEST_F(InstanceMetadataTest, AServiceThatIsNoneIsAnErrorThatNamesTheRequest) {
  service_.answer = [](const http::Request&) { return http::Response{.status = 403}; };
  for (const auto cloud : {InstanceMetadata::kAws, InstanceMetadata::kGcp, InstanceMetadata::kAzure}) {
    const auto found = LookForDeparture(cloud, service_, {});
    ASSERT_FALSE(found.ok());
    EXPECT_NE(found.error().message.find("status 403"), std::string::npos) << found.error().message;
    EXPECT_NE(found.error().message.find("/"), std::string::npos) << found.error().message;
  }
  EXPECT_FALSE(Look(InstanceMetadata::kAws, {{kAwsToken, "t"}, {kAwsAction, "<html>"}}).ok());
}

}  // namespace
}  // namespace lockstep::launch
