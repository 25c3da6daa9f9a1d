// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/start_check.h"

#include <vector>

namespace ddp::comm {
namespace {

// A local variable, because initializers of other files use it before this file's variables exist.
std::vector<void (*)()>& start_checks() {
  static std::vector<void (*)()> checks;
  return checks;
}

}  // namespace

void add_start_check(void (*check)()) {
  start_checks().push_back(check);
}

void make_start_checks() {
  for (void (*check)() : start_checks()) check();
}

}  // namespace ddp::comm
