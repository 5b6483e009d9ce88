#pragma once
// Address and credentials for the API server: from the pod's service account or from a kubeconfig. The only
// file of the operator that reads YAML. Used once, by main.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/result.h"
#include "runtime/common/http/transport.h"

namespace lockstep::kube {

// A folder with mode 0700 for certificates that a kubeconfig contains inline. The destructor removes it with
// its contents.
class PrivateFolder {
 public:
  [[nodiscard]] static Result<std::unique_ptr<PrivateFolder>> Make();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  // Returns the path of the new file.
  [[nodiscard]] Result<std::string> Write(const std::string& name, const std::string& content) const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// A command that prints credentials; exec_credentials.h runs it.
struct ExecPlugin {
  std::string api_version;
  std::vector<std::string> words;        // the program first
  std::vector<std::string> environment;  // "NAME=value"
};

struct ClientConfig {
  http::Endpoint endpoint;
  std::optional<ExecPlugin> exec;
  std::string name_space;  // of the context or the service account; "default" if neither has one
  std::unique_ptr<PrivateFolder> files;  // paths in `endpoint` may point into this folder
};

using Environment = std::function<std::string(const char* name)>;  // "" if the variable is not set

[[nodiscard]] Result<ClientConfig> InClusterConfig(const Environment& environment, const std::string& folder);
// `context` empty: the file's current-context. An entry with a user name and password is an error that names
// it.
[[nodiscard]] Result<ClientConfig> ConfigFromKubeconfig(const std::string& path, const std::string& context);
// Uses the given file; else, in a pod, the service account; else $KUBECONFIG or ~/.kube/config.
[[nodiscard]] Result<ClientConfig> LoadClientConfig(const std::string& kubeconfig,
                                                    const Environment& environment);

}  // namespace lockstep::kube
