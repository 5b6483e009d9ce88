#pragma once
// The objects below spec.training.data.path where it is a URI. Any thread. Errors name the object and say
// what would be right; kUnavailable where another try may help.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/result.h"

namespace lockstep::data {

struct RemoteObject {
  std::string name;  // below the path: "train.csv", "train/cat/1.jpg"
  int64_t bytes = 0;
  std::string version;  // another one means other content

  friend bool operator==(const RemoteObject&, const RemoteObject&) = default;
};

class RemoteObjects {
 public:
  virtual ~RemoteObjects() = default;
  [[nodiscard]] virtual Result<RemoteObject> Find(const std::string& name) = 0;
  // In order of name.
  [[nodiscard]] virtual Result<std::vector<RemoteObject>> List() = 0;
  // Fills `target` with what begins at `offset`, as long as the object has the version that was found.
  [[nodiscard]] virtual Result<void> Read(const std::string& name, int64_t offset,
                                          std::span<char> target) = 0;
};

// "s3", "gs" or "abfs".
[[nodiscard]] inline std::string SchemeOf(const api::DataSpec& spec) {
  return spec.path.substr(0, spec.path.find(':'));
}

// Asks the store nothing yet.
[[nodiscard]] Result<std::unique_ptr<RemoteObjects>> OpenRemoteObjects(const api::DataSpec& spec);

}  // namespace lockstep::data
