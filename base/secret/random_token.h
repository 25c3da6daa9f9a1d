// SPDX-License-Identifier: Apache-2.0
// A unique name that cannot be guessed.
#pragma once

#include <string>

namespace ddp {

// 128 random bits as 32 hexadecimal digits. Throws RuntimeError if the kernel provides no random
// numbers.
std::string random_token();

}  // namespace ddp
