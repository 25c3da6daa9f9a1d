// SPDX-License-Identifier: Apache-2.0
// The two kinds of error. They differ in who can fix them, who must report them, and the exit code.
#pragma once

#include <stdexcept>

namespace ddp {

// The user requested something impossible. The text is one sentence: what is wrong, where, and what
// to do. Executables exit with 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A file, a peer or the network failed, although the request was valid. Executables exit with 1.
class RuntimeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddp
