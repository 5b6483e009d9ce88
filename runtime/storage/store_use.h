#pragma once
// Who uses an object store, and for what. Errors name these fields.

#include <string>
#include <string_view>

#include "runtime/common/base/file.h"

namespace lockstep::storage {

struct StoreUse {
  std::string field;  // "spec.checkpoint.uri": the field that names the bucket
  // "spec.checkpoint.secretRef"; empty: a command, whose user sets the variables.
  std::string secret_field;
  // Prefix of each variable's name, so that the Secrets of two stores do not collide in the environment.
  std::string variable_prefix;

  [[nodiscard]] std::string VariableOr(const char* name, std::string_view fallback) const {
    return EnvOr((variable_prefix + name).c_str(), fallback);
  }
  // Where the variables are set, for errors.
  [[nodiscard]] std::string place_of_variables() const {
    return secret_field.empty() ? "the environment" : "the Secret named by " + secret_field;
  }
};

}  // namespace lockstep::storage
