#include "operator/kube/client_config.h"

#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "operator/kube/base64.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/strings.h"

namespace lockstep::kube {
namespace {

constexpr const char* kServiceAccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr const char* kExecVersion = "client.authentication.k8s.io/v1";
constexpr const char* kExecBetaVersion = "client.authentication.k8s.io/v1beta1";
constexpr std::size_t kMaxKubeconfigBytes = 1U << 20U;

std::string TextAt(const YAML::Node& node, const char* key) {
  const YAML::Node value = node[key];
  return value && value.IsScalar() ? value.as<std::string>() : std::string();
}

// In the list `kind`s, the `kind` section of the entry named `name`.
Result<YAML::Node> FindNamed(const YAML::Node& config, const std::string& kind, const std::string& name) {
  const YAML::Node list = config[kind + "s"];
  if (list && list.IsSequence()) {
    for (const YAML::Node& entry : list) {
      if (TextAt(entry, "name") == name && entry[kind] && entry[kind].IsMap()) return YAML::Node(entry[kind]);
    }
  }
  return Error{ErrorCode::kInvalidArgument, "no " + kind + " is named \"" + name + "\""};
}

// Relative paths in a kubeconfig refer to its own folder.
std::string Absolute(const std::string& path, const std::string& kubeconfig) {
  if (path.empty() || path.front() == '/') return path;
  return (std::filesystem::path(kubeconfig).parent_path() / path).string();
}

// The content of "<key>-data" in the kubeconfig, else of the file that `key` names, else "".
Result<std::string> FileAt(const YAML::Node& node, const std::string& key, const std::string& kubeconfig,
                           const PrivateFolder& files) {
  const std::string data = TextAt(node, (key + "-data").c_str());
  if (data.empty()) return Absolute(TextAt(node, key.c_str()), kubeconfig);
  LOCKSTEP_TRY(const std::string content, DecodeBase64(data).WithContext(key + "-data"));
  return files.Write(key + ".pem", content);
}

Result<void> RefuseUnsupported(const YAML::Node& cluster, const YAML::Node& user) {
  for (const char* key : {"auth-provider", "username", "password"}) {
    if (user[key])
      return Error{
          ErrorCode::kUnsupported,
          std::string("user.") + key + " is not supported; use a token, a client certificate or exec"};
  }
  const std::string insecure = TextAt(cluster, "insecure-skip-tls-verify");
  if (!insecure.empty() && insecure != "false") {
    return Error{ErrorCode::kUnsupported, "cluster.insecure-skip-tls-verify is not supported"};
  }
  const std::string proxy = TextAt(cluster, "proxy-url");
  if (!proxy.empty() && (!proxy.starts_with("http://") || proxy.find('@') != std::string::npos)) {
    return Error{ErrorCode::kUnsupported,
                 "cluster.proxy-url must be http://host:port; other schemes and log-ins are not supported"};
  }
  return {};
}

Result<ExecPlugin> ExecFromYaml(const YAML::Node& exec, const std::string& kubeconfig) {
  const auto wrong = [](const std::string& what) {
    return Error{ErrorCode::kUnsupported, "user.exec." + what};
  };
  ExecPlugin plugin{.api_version = TextAt(exec, "apiVersion")};
  if (plugin.api_version != kExecVersion && plugin.api_version != kExecBetaVersion) {
    return wrong(std::string("apiVersion must be ") + kExecVersion + " or " + kExecBetaVersion);
  }
  if (TextAt(exec, "interactiveMode") == "Always")
    return wrong("interactiveMode Always: the operator has no terminal");
  if (TextAt(exec, "provideClusterInfo") == "true") return wrong("provideClusterInfo is not supported");
  const std::string program = TextAt(exec, "command");
  if (program.empty()) return wrong("command is missing");
  plugin.words.push_back(program.find('/') == std::string::npos ? program : Absolute(program, kubeconfig));
  for (const YAML::Node& word : exec["args"]) plugin.words.push_back(word.as<std::string>());
  for (const YAML::Node& entry : exec["env"]) {
    plugin.environment.push_back(TextAt(entry, "name") + "=" + TextAt(entry, "value"));
  }
  return plugin;
}

Result<ClientConfig> ConfigFromYaml(const YAML::Node& config, const std::string& path,
                                    const std::string& context) {
  const std::string name = context.empty() ? TextAt(config, "current-context") : context;
  LOCKSTEP_TRY(const YAML::Node chosen, FindNamed(config, "context", name));
  LOCKSTEP_TRY(const YAML::Node cluster, FindNamed(config, "cluster", TextAt(chosen, "cluster")));
  LOCKSTEP_TRY(const YAML::Node user, FindNamed(config, "user", TextAt(chosen, "user")));
  LOCKSTEP_TRY(RefuseUnsupported(cluster, user));
  ClientConfig result;
  LOCKSTEP_TRY(result.files, PrivateFolder::Make());
  http::Endpoint& endpoint = result.endpoint;
  endpoint.url = TextAt(cluster, "server");
  while (endpoint.url.ends_with('/')) endpoint.url.pop_back();
  endpoint.server_name = TextAt(cluster, "tls-server-name");
  endpoint.proxy_url = TextAt(cluster, "proxy-url");
  LOCKSTEP_TRY(endpoint.ca_file, FileAt(cluster, "certificate-authority", path, *result.files));
  LOCKSTEP_TRY(endpoint.certificate_file, FileAt(user, "client-certificate", path, *result.files));
  LOCKSTEP_TRY(endpoint.key_file, FileAt(user, "client-key", path, *result.files));
  endpoint.token = TextAt(user, "token");
  if (endpoint.token.empty()) endpoint.token_file = Absolute(TextAt(user, "tokenFile"), path);
  if (user["exec"]) {
    LOCKSTEP_TRY(result.exec, ExecFromYaml(user["exec"], path));
  }
  result.name_space = TextAt(chosen, "namespace");
  if (result.name_space.empty()) result.name_space = "default";
  return result;
}

}  // namespace

Result<std::unique_ptr<PrivateFolder>> PrivateFolder::Make() {
  std::string path = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr)
    return Error{ErrorCode::kUnavailable, "cannot create a folder like " + path};
  return std::unique_ptr<PrivateFolder>(new PrivateFolder(std::move(path)));
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Result<std::string> PrivateFolder::Write(const std::string& name, const std::string& content) const {
  const std::string path = path_ + "/" + name;
  LOCKSTEP_TRY(WriteFile(path, content));
  if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0)
    return Error{ErrorCode::kUnavailable, "cannot protect " + path};
  return path;
}

Result<ClientConfig> InClusterConfig(const Environment& environment, const std::string& folder) {
  const std::string host = environment("KUBERNETES_SERVICE_HOST");
  const std::string port = environment("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return Error{ErrorCode::kNotFound, "not in a pod: KUBERNETES_SERVICE_HOST and _PORT are not set"};
  }
  ClientConfig result;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  result.endpoint.url = "https://" + (is_ipv6 ? "[" + host + "]" : host) + ":" + port;
  result.endpoint.ca_file = folder + "/ca.crt";
  result.endpoint.token_file = folder + "/token";
  // the API server of the operator's own cluster is reached without a proxy
  result.endpoint.use_proxy_environment = false;
  if (const auto token = ReadFile(result.endpoint.token_file); !token.ok()) return token.error();
  const auto name_space = ReadFile(folder + "/namespace");
  result.name_space = name_space.ok() ? *name_space : "default";
  return result;
}

Result<ClientConfig> ConfigFromKubeconfig(const std::string& path, const std::string& context) {
  LOCKSTEP_TRY(const std::string text, ReadFile(path).WithContext("kubeconfig"));
  if (text.size() > kMaxKubeconfigBytes) return Error{ErrorCode::kInvalidArgument, path + ": too large"};
  try {
    return ConfigFromYaml(YAML::Load(text), path, context).WithContext(path);
  } catch (const YAML::Exception& exception) {
    return Error{ErrorCode::kInvalidArgument, path + ": " + exception.what()};
  }
}

Result<ClientConfig> LoadClientConfig(const std::string& kubeconfig, const Environment& environment) {
  if (!kubeconfig.empty()) return ConfigFromKubeconfig(kubeconfig, "");
  auto in_cluster = InClusterConfig(environment, kServiceAccountFolder);
  if (in_cluster.ok() || in_cluster.error().code != ErrorCode::kNotFound ||
      !environment("KUBERNETES_SERVICE_HOST").empty()) {
    return in_cluster;
  }
  const std::string named = environment("KUBECONFIG");
  return ConfigFromKubeconfig(named.empty() ? environment("HOME") + "/.kube/config" : named, "");
}

}  // namespace lockstep::kube
