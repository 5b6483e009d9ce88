#pragma once
// Who reaches an object store, and for what. Errors name the fields.

#include <string>
#include <string_view>

#include "runtime/common/base/file.h"

namespace lockstep::storage {

struct StoreUse {
  std::string field;  // "spec.checkpoint.uri": what names the bucket
  // "spec.checkpoint.secretRef"; empty: of a command, whose user sets the variables.
  std::string secret_field;
  // Before the name of each variable: the Secrets of two stores do not meet in the environment.
  std::string variable_prefix;

  [[nodiscard]] std::string VariableOr(const char* name, std::string_view fallback) const {
    return EnvOr((variable_prefix + name).c_str(), fallback);
  }
  // Where they are set, for errors.
  [[nodiscard]] std::string place_of_variables() const {
    return secret_field.empty() ? "the environment" : "the Secret named by " + secret_field;
  }
};

}  // namespace lockstep::storage
