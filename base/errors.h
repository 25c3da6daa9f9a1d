// SPDX-License-Identifier: Apache-2.0
// The two kinds of failure of a program, told apart by who can fix it and who must report it.
#pragma once

#include <stdexcept>

namespace ddp {

// The user asked for something impossible. The text is one sentence: what is wrong, where, and
// what to do. Executables exit with 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Something that should work did not: a file, a peer, the network. Executables exit with 1.
class RuntimeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddp
