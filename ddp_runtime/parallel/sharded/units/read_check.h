// SPDX-License-Identifier: Apache-2.0
// Finds operators that read a parameter while it has no memory.
//
// Note [Reads outside of units]
// The likely mistake with units is to name them and to call their modules as before, or to look at
// weights between steps. What reads such a parameter would follow a null pointer. So libtorch tells
// each operator's arguments before it runs; a parameter without memory gets zeros to read, and the
// next collective call throws an error that names its unit. That takes about a microsecond for each
// operator. Most of them are in units, whose code is the same in each step, so units and backward
// are checked in the first step only, and what is outside of them always.
#pragma once

#include <ATen/record_function.h>

namespace ddp {

// While it lives, operators of this thread are checked: see UnitCalls::note_read(). Does nothing in
// a build without NDEBUG, in which libtorch's record of an operator has another layout.
class ReadCheck {
 public:
  ReadCheck();
  ReadCheck(const ReadCheck&) = delete;
  ReadCheck& operator=(const ReadCheck&) = delete;
  ~ReadCheck();

 private:
  at::CallbackHandle handle_;  // 0: none
};

}  // namespace ddp
