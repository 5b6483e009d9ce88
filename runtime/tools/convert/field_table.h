#pragma once
// Every field of Kubeflow's PyTorchJob (kubeflow.org/v1, Training Operator 1.9) and every flag of torchrun
// that `lockstep convert` supports, with its conversion. The conversion reads no field that is not listed
// here. docs/how-to/migration.md has the same rows, which a test compares. Pure.

#include <span>
#include <string_view>

namespace lockstep::convert {

enum class Fate {
  kBecomes,    // converted to the field `ours`
  kNotNeeded,  // dropped without loss: a warning
  kLost,       // the job would behave differently: an error
};

struct Field {
  std::string_view theirs;
  Fate fate;
  std::string_view ours;    // for kBecomes
  std::string_view remark;  // shown in docs/how-to/migration.md; for the other outcomes also the message
};

[[nodiscard]] std::span<const Field> JobFields();
// Relative to the `template` of a replica spec; the name of a container is in brackets.
[[nodiscard]] std::span<const Field> TemplateFields();
[[nodiscard]] std::span<const Field> LaunchFlags();
// Keys of spec.elasticPolicy.rdzvConf and --rdzv_conf.
[[nodiscard]] std::span<const Field> RendezvousKeys();

// nullptr if there is none.
[[nodiscard]] const Field* FindField(std::span<const Field> fields, std::string_view theirs);

}  // namespace lockstep::convert
