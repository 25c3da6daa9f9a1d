// SPDX-License-Identifier: Apache-2.0
// For tests of what is said when something is wrong.
#pragma once

#include <exception>
#include <string>

namespace ddp {

// The text of what `call` throws; empty if it does not.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

}  // namespace ddp
