// SPDX-License-Identifier: Apache-2.0
// For tests of error messages.
#pragma once

#include <exception>
#include <string>

namespace ddp {

// Returns the text of the exception that `call` throws; empty if it throws none. An exception of
// another class than `Error` is passed on.
template <class Error = std::exception, class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

}  // namespace ddp
