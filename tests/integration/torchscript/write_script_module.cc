// write_script_module PATH: a small network for images [1, 28, 28] of ten classes, with a norm and dropout.

#include "tests/support/script_modules.h"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  torch::manual_seed(1);
  lockstep::test::ScriptNormCnn().save(arguments[1]);
  return 0;
}
