#include "runtime/storage/azure_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace lockstep::storage {
namespace {

using testing::HasSubstr;
using testing::Not;
using Variables = std::map<std::string, std::string>;

constexpr const char* kPlace = "box@acct.dfs.core.windows.net/jobs/one";

Result<AzureSettings> Settings(const std::string& place, const Variables& variables) {
  for (const char* name : {"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN",
                           "AZURE_STORAGE_CONNECTION_STRING"}) {
    const auto variable = variables.find(name);
    const std::string prefixed = std::string("TEST_") + name;
    unsetenv(prefixed.c_str());
    if (variable != variables.end()) setenv(prefixed.c_str(), variable->second.c_str(), /*overwrite=*/1);
  }
  return AzureSettingsFromEnvironment(
      {.field = "spec.field", .secret_field = "spec.secretRef", .variable_prefix = "TEST_"}, place);
}

AzureSettings Good(const std::string& place, const Variables& variables) {
  const auto settings = Settings(place, variables);
  EXPECT_TRUE(settings.ok()) << (settings.ok() ? "" : settings.error().message);
  return settings.ok() ? *settings : AzureSettings{};
}

std::string Refusal(const std::string& place, const Variables& variables) {
  const auto settings = Settings(place, variables);
  EXPECT_FALSE(settings.ok());
  if (settings.ok()) return "";
  EXPECT_EQ(settings.error().code, ErrorCode::kInvalidArgument);
  return settings.error().message;
}

TEST(AzureSettings, ReadsAccountAndContainerOfTheUri) {
  const AzureSettings settings = Good(kPlace, {{"AZURE_STORAGE_KEY", "a2V5"}});
  EXPECT_EQ(settings.account, "acct");
  EXPECT_EQ(settings.path, "box/jobs/one");
  EXPECT_EQ(settings.key, "a2V5");
  EXPECT_EQ(settings.scheme, "https");
  EXPECT_EQ(settings.blob_authority, ".blob.core.windows.net");
  EXPECT_EQ(settings.dfs_authority, ".dfs.core.windows.net");
}

TEST(AzureSettings, ReadsTheHostOfANationalCloud) {
  const AzureSettings settings = Good("box@acct.dfs.core.chinacloudapi.cn", {});
  EXPECT_EQ(settings.account, "acct");
  EXPECT_EQ(settings.path, "box");
  EXPECT_EQ(settings.blob_authority, ".blob.core.chinacloudapi.cn");
  EXPECT_EQ(settings.dfs_authority, ".dfs.core.chinacloudapi.cn");
}

TEST(AzureSettings, TakesTheAccountOfTheEnvironment) {
  const AzureSettings settings =
      Good("box/one", {{"AZURE_STORAGE_ACCOUNT", "acct"}, {"AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=x"}});
  EXPECT_EQ(settings.account, "acct");
  EXPECT_EQ(settings.path, "box/one");
  EXPECT_EQ(settings.key, "");
  EXPECT_EQ(settings.sas_token, "sv=1&sig=x");
}

TEST(AzureSettings, ReadsAConnectionStringOfAzure) {
  const AzureSettings settings =
      Good("box/one", {{"AZURE_STORAGE_CONNECTION_STRING",
                        "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=a2V5eQ==;"
                        "EndpointSuffix=core.usgovcloudapi.net"}});
  EXPECT_EQ(settings.account, "acct");
  EXPECT_EQ(settings.key, "a2V5eQ==") << "an equals sign is part of the value";
  EXPECT_EQ(settings.blob_authority, ".blob.core.usgovcloudapi.net");
  EXPECT_EQ(settings.dfs_authority, ".dfs.core.usgovcloudapi.net");
}

TEST(AzureSettings, ReadsAConnectionStringOfAnEmulator) {
  const AzureSettings settings =
      Good(kPlace, {{"AZURE_STORAGE_CONNECTION_STRING",
                     "AccountName=acct;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:10000/acct;"}});
  EXPECT_EQ(settings.scheme, "http");
  EXPECT_EQ(settings.account, "acct");
  EXPECT_EQ(settings.blob_authority, "127.0.0.1:10000");
  EXPECT_EQ(settings.dfs_authority, "127.0.0.1:10000");
}

TEST(AzureSettings, ReadsAConnectionStringWithASharedAccessSignature) {
  const AzureSettings settings =
      Good("box", {{"AZURE_STORAGE_CONNECTION_STRING",
                    "BlobEndpoint=https://acct.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=a%3D"}});
  EXPECT_EQ(settings.account, "acct");
  EXPECT_EQ(settings.sas_token, "sv=1&sig=a%3D");
  EXPECT_EQ(settings.blob_authority, ".blob.core.windows.net");
}

TEST(AzureSettings, RefusesAUriWithoutAnAccount) {
  EXPECT_THAT(Refusal("box/one", {}),
              HasSubstr("spec.field: abfs://box/one names no account; write it as "
                        "abfs://container@account.dfs.core.windows.net/folder, or set "
                        "AZURE_STORAGE_ACCOUNT in the Secret named by spec.secretRef"));
}

TEST(AzureSettings, RefusesAnotherHost) {
  for (const char* host : {"acct", "acct.blob.core.windows.net", ".dfs.core.windows.net", "a-b.dfs.x", ""}) {
    EXPECT_THAT(Refusal(std::string("box@") + host + "/one", {}),
                HasSubstr("spec.field: \"" + std::string(host) + "\" is no account's host"));
  }
}

TEST(AzureSettings, RefusesAnotherContainer) {
  // The second is a form that other tools use: the account first.
  for (const char* container : {"Box", "acct.blob.core.windows.net", ""}) {
    EXPECT_THAT(Refusal(std::string(container) + "/box/one", {{"AZURE_STORAGE_ACCOUNT", "acct"}}),
                HasSubstr("spec.field: \"" + std::string(container) + "\" is no name of a container"));
  }
}

TEST(AzureSettings, RefusesTheKeyOfAnotherAccount) {
  const std::string both = "the account is \"acct\" there and \"other\" by ";
  EXPECT_THAT(Refusal(kPlace, {{"AZURE_STORAGE_ACCOUNT", "other"}, {"AZURE_STORAGE_KEY", "a2V5"}}),
              HasSubstr(both + "AZURE_STORAGE_ACCOUNT in the Secret"));
  EXPECT_THAT(Refusal(kPlace, {{"AZURE_STORAGE_CONNECTION_STRING", "AccountName=other;AccountKey=a2V5"}}),
              HasSubstr(both + "AZURE_STORAGE_CONNECTION_STRING in the Secret"));
}

TEST(AzureSettings, RefusesWhatIsNoKeyAndDoesNotShowIt) {
  for (const char* key : {"hidden", "hid!", "====", "a2V5="}) {
    const std::string refusal = Refusal(kPlace, {{"AZURE_STORAGE_KEY", key}});
    EXPECT_THAT(refusal,
                HasSubstr("AZURE_STORAGE_KEY in the Secret named by spec.secretRef: holds no account "
                          "key, which is Base64"));
    EXPECT_THAT(refusal, Not(HasSubstr(key)));
  }
}

TEST(AzureSettings, RefusesAConnectionStringThatIsNone) {
  for (const char* text : {"acct", "AccountName=acct;hidden", "BlobEndpoint=acct.blob.core.windows.net",
                           "BlobEndpoint=http://127.0.0.1:10000", "BlobEndpoint=ftp://h/acct"}) {
    const std::string refusal = Refusal("box/one", {{"AZURE_STORAGE_CONNECTION_STRING", text}});
    EXPECT_THAT(refusal,
                HasSubstr("AZURE_STORAGE_CONNECTION_STRING in the Secret named by spec.secretRef: "));
    EXPECT_THAT(refusal, Not(HasSubstr("hidden")));
  }
}

}  // namespace
}  // namespace lockstep::storage
