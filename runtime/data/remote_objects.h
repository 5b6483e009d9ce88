#pragma once
// The objects below spec.training.data.path if it is a URI. Any thread. Errors name the object and the
// remedy. kUnavailable: another try may help.

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
  std::string version;  // changes when the content changes

  friend bool operator==(const RemoteObject&, const RemoteObject&) = default;
};

class RemoteObjects {
 public:
  virtual ~RemoteObjects() = default;
  [[nodiscard]] virtual Result<RemoteObject> Find(const std::string& name) = 0;
  // Ordered by name.
  [[nodiscard]] virtual Result<std::vector<RemoteObject>> List() = 0;
  // Fills `target` with the bytes from `offset` on. The object must still have the version that was found.
  [[nodiscard]] virtual Result<void> Read(const std::string& name, int64_t offset,
                                          std::span<char> target) = 0;
};

// "s3", "gs" or "abfs".
[[nodiscard]] inline std::string SchemeOf(const api::DataSpec& spec) {
  return spec.path.substr(0, spec.path.find(':'));
}

// Sends no request to the store yet.
[[nodiscard]] Result<std::unique_ptr<RemoteObjects>> OpenRemoteObjects(const api::DataSpec& spec);

}  // namespace lockstep::data
