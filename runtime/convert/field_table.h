#pragma once
// Every field of Kubeflow's PyTorchJob (kubeflow.org/v1, Training Operator 1.9) and every flag of torchrun
// that `lockstep convert` knows, with what becomes of it. The conversion reads no field that is not here, and
// docs/how-to/migration.md shows the same rows: a test compares them. Pure.

#include <span>
#include <string_view>

namespace lockstep::convert {

enum class Fate {
  kBecomes,    // `ours`
  kNotNeeded,  // nothing is lost: a warning says so
  kLost,       // the job would do something else: an error
};

struct Field {
  std::string_view theirs;
  Fate fate;
  std::string_view ours;    // of kBecomes
  std::string_view remark;  // in docs/how-to/migration.md; of the other fates also the message
};

[[nodiscard]] std::span<const Field> JobFields();
// Below the `template` of a replica spec; a container that is named stands in brackets.
[[nodiscard]] std::span<const Field> TemplateFields();
[[nodiscard]] std::span<const Field> LaunchFlags();
// Of spec.elasticPolicy.rdzvConf and --rdzv_conf.
[[nodiscard]] std::span<const Field> RendezvousKeys();

// nullptr where there is none.
[[nodiscard]] const Field* FindField(std::span<const Field> fields, std::string_view theirs);

}  // namespace lockstep::convert
