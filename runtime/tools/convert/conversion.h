#pragma once
// What the parts of the conversion of a PyTorchJob share: what was read so far, and the job that they fill.
// Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "runtime/common/base/json.h"
#include "runtime/tools/convert/notice.h"
#include "runtime/tools/convert/pod_template.h"
#include "runtime/tools/convert/pytorch_job_reader.h"
#include "runtime/tools/convert/yaml_text.h"

namespace lockstep::convert {

struct Conversion {
  explicit Conversion(Json object) : source(std::move(object)), reader(source, notices) {}

  Json& Spec() { return result["spec"]; }
  // Adds a comment to the field of the result at `path`.
  void Comment(const std::string& path, const std::string& text);
  // The value of a flag of torchrun; "" if it is absent.
  [[nodiscard]] std::string Flag(const std::string& name) const;
  // The flag's place in the document.
  [[nodiscard]] std::string FlagPath(const std::string& name) const;

  const Json source;
  Notices notices;
  PyTorchJobReader reader;
  Json result;  // the DistributedTrainingJob
  Comments comments;

  // Known once the pods are converted.
  PodTemplate pods;
  std::string template_path;  // in the document
  std::string restart_policy;
  std::string restart_path;
  int64_t replicas = 0;
  bool has_master = false;

  bool is_elastic = false;  // known once the elasticity is converted
};

// A number of at most nine digits.
[[nodiscard]] std::optional<int64_t> IntegerFrom(const std::string& text);
// Whether the value of a flag is a variable. Those that torchrun takes from Kubeflow's variables are also in
// the fields of the document.
[[nodiscard]] bool IsVariable(const std::string& value);

}  // namespace lockstep::convert
