// A name that nobody else has or can guess.
#pragma once

#include <string>

namespace ddp::comm {

// 128 random bits as 32 hexadecimal digits. Throws RuntimeError if the kernel gives none.
std::string random_token();

}  // namespace ddp::comm
