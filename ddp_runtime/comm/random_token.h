// A name that nobody else has or can guess.
#pragma once

#include <string>
#include <string_view>

namespace ddp::comm {

// 128 random bits as 32 hexadecimal digits. Throws RuntimeError if the kernel gives none.
std::string random_token();
// Compares in a time that does not tell how much of the guess is right.
bool same_secret(std::string_view guess, std::string_view secret) noexcept;

}  // namespace ddp::comm
