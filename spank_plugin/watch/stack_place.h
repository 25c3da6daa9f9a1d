// SPDX-License-Identifier: Apache-2.0
// Where a Python program stands, from the stacks that Python's faulthandler has written.
#pragma once

#include <string>
#include <string_view>

namespace ddp::watch {

// Returns "train.py:88 in step (distributed_c10d.all_reduce)": the place of the program's own code
// and what it calls there; without the call "data.py:17 in load". Own is what is not part of Python
// or of an installed package; if nothing is, the place is the innermost one. Empty if the text has
// no stack; of several the last one counts. The text is not trusted, and the place is printable and
// at most 127 characters long.
std::string place_in_stacks(std::string_view text);

}  // namespace ddp::watch
