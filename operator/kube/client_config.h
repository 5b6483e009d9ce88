#pragma once
// Where the API server is and who we are: from the pod's service account, or from a kubeconfig. The only file
// of the operator that reads YAML. Used once, by main.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/result.h"
#include "runtime/common/http/transport.h"

namespace lockstep::kube {

// A folder only we can read, for certificates that a kubeconfig carries inside; removed with its contents.
class PrivateFolder {
 public:
  [[nodiscard]] static Result<std::unique_ptr<PrivateFolder>> Make();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  // The path of the new file.
  [[nodiscard]] Result<std::string> Write(const std::string& name, const std::string& content) const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// A command that says who we are; exec_credentials.h runs it.
struct ExecPlugin {
  std::string api_version;
  std::vector<std::string> words;        // the program first
  std::vector<std::string> environment;  // "NAME=value"
};

struct ClientConfig {
  http::Endpoint endpoint;
  std::optional<ExecPlugin> exec;
  std::string name_space;  // of the context or the service account; "default" where neither says
  std::unique_ptr<PrivateFolder> files;  // endpoint's paths may point into it
};

using Environment = std::function<std::string(const char* name)>;  // "" where unset

[[nodiscard]] Result<ClientConfig> InClusterConfig(const Environment& environment, const std::string& folder);
// `context` empty: the file's current-context. Password log-ins are refused by name.
[[nodiscard]] Result<ClientConfig> ConfigFromKubeconfig(const std::string& path, const std::string& context);
// The given file; else, in a pod, the service account; else $KUBECONFIG or ~/.kube/config.
[[nodiscard]] Result<ClientConfig> LoadClientConfig(const std::string& kubeconfig,
                                                    const Environment& environment);

}  // namespace lockstep::kube
