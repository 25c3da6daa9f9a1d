// SPDX-License-Identifier: Apache-2.0
// For tests of error messages.
#pragma once

#include <exception>
#include <string>

namespace ddp {

// Returns the text of the exception that `call` throws; empty if it throws none.
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
