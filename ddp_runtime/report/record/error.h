// SPDX-License-Identifier: Apache-2.0
// An error in a report's input, worded for the user who requested the report.
#pragma once

#include <stdexcept>

namespace ddp::report {

// One sentence: which file, which field, what to do.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddp::report
