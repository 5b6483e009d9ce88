#include "operator/kube/client_config.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "operator/kube/base64.h"
#include "runtime/common/base/file.h"

namespace lockstep::kube {
namespace {

class ClientConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / "client-config-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  Result<ClientConfig> Load(const std::string& yaml, const std::string& context = "") {
    EXPECT_TRUE(WriteFile(Path("config"), yaml).ok());
    return ConfigFromKubeconfig(Path("config"), context);
  }

  std::string folder_;
};

std::string Kubeconfig(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
         "clusters: [{name: c, cluster: {server: 'https://host:6443/', " +
         cluster +
         "}}]\n"
         "users: [{name: u, user: {" +
         user +
         "}}]\n"
         "contexts:\n- {name: here, context: {cluster: c, user: u, namespace: team}}\n"
         "- {name: lost, context: {cluster: nowhere, user: u}}\n";
}

TEST_F(ClientConfigTest, WritesCertificatesThatAKubeconfigCarriesIntoPrivateFiles) {
  auto config = Load(Kubeconfig(
      "certificate-authority-data: " + EncodeBase64("the ca"),
      "client-certificate-data: " + EncodeBase64("cert") + ", client-key-data: " + EncodeBase64("key")));
  ASSERT_TRUE(config.ok()) << config.error().ToString();
  EXPECT_EQ(config->endpoint.url, "https://host:6443");
  EXPECT_EQ(config->name_space, "team");
  EXPECT_EQ(*ReadFile(config->endpoint.ca_file), "the ca");
  const std::string key_file = config->endpoint.key_file;
  EXPECT_EQ(*ReadFile(key_file), "key");
  struct stat info {};
  ASSERT_EQ(::stat(key_file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  config->files.reset();
  EXPECT_FALSE(ReadFile(key_file).ok()) << "gone with the config";
}

TEST_F(ClientConfigTest, TakesFilesRelativeToTheKubeconfig) {
  const auto config = Load(Kubeconfig("certificate-authority: pki/ca.crt", "tokenFile: /abs/token"));
  ASSERT_TRUE(config.ok()) << config.error().ToString();
  EXPECT_EQ(config->endpoint.ca_file, Path("pki/ca.crt"));
  EXPECT_EQ(config->endpoint.token_file, "/abs/token");
}

TEST_F(ClientConfigTest, KnowsTheProxyAndTheNameInTheServersCertificate) {
  const auto config =
      Load(Kubeconfig("proxy-url: 'http://proxy:3128', tls-server-name: api.internal", "token: t"));
  ASSERT_TRUE(config.ok()) << config.error().ToString();
  EXPECT_EQ(config->endpoint.proxy_url, "http://proxy:3128");
  EXPECT_EQ(config->endpoint.server_name, "api.internal");
}

TEST_F(ClientConfigTest, ReadsTheCommandThatSaysWhoWeAre) {
  const auto config = Load(
      Kubeconfig("x: y",
                 "exec: {apiVersion: client.authentication.k8s.io/v1, command: bin/login, args: [get, token],"
                 " env: [{name: REGION, value: here}]}"));
  ASSERT_TRUE(config.ok()) << config.error().ToString();
  ASSERT_TRUE(config->exec.has_value());
  EXPECT_EQ(config->exec->words, (std::vector<std::string>{Path("bin/login"), "get", "token"}));
  EXPECT_EQ(config->exec->environment, std::vector<std::string>{"REGION=here"});
}

TEST_F(ClientConfigTest, NamesWhatItCannotUse) {
  const struct {
    std::string yaml;
    std::string context;
    std::string message;
  } cases[] = {
      {Kubeconfig("x: y", "exec: {command: login}"), "", "user.exec.apiVersion must be"},
      {Kubeconfig("x: y", "exec: {apiVersion: client.authentication.k8s.io/v1}"), "", "command is missing"},
      {Kubeconfig("x: y", "username: u, password: p"), "", "user.username is not supported"},
      {Kubeconfig("insecure-skip-tls-verify: true", "token: t"), "", "insecure-skip-tls-verify"},
      {Kubeconfig("proxy-url: 'socks5://p:1'", "token: t"), "", "cluster.proxy-url must be http://"},
      {Kubeconfig("proxy-url: 'http://me:secret@p:1'", "token: t"), "", "cluster.proxy-url must be http://"},
      {Kubeconfig("x: y", "token: t"), "other", "no context is named \"other\""},
      {Kubeconfig("x: y", "token: t"), "lost", "no cluster is named \"nowhere\""},
      {Kubeconfig("certificate-authority-data: '***'", "token: t"), "", "not valid base64"},
      {"a: [b", "", "config"},
      {"", "", "no context is named"},
  };
  for (const auto& test : cases) {
    const auto config = Load(test.yaml, test.context);
    ASSERT_FALSE(config.ok()) << test.yaml;
    EXPECT_NE(config.error().message.find(test.message), std::string::npos) << config.error().message;
  }
}

TEST_F(ClientConfigTest, UsesTheServiceAccountInAPod) {
  ASSERT_TRUE(WriteFile(Path("token"), "t0ken").ok());
  ASSERT_TRUE(WriteFile(Path("namespace"), "system").ok());
  const auto environment = [](const char* name) {
    return std::string(name) == "KUBERNETES_SERVICE_HOST" ? "fd00::1" : "443";
  };
  const auto config = InClusterConfig(environment, folder_);
  ASSERT_TRUE(config.ok()) << config.error().ToString();
  EXPECT_EQ(config->endpoint.url, "https://[fd00::1]:443");
  EXPECT_EQ(config->endpoint.token_file, Path("token"));
  EXPECT_EQ(config->name_space, "system");
}

TEST_F(ClientConfigTest, SaysSoOutsideOfAPod) {
  const auto config = InClusterConfig([](const char*) { return std::string(); }, folder_);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::kube
