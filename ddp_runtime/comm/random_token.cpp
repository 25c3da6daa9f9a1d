#include "ddp_runtime/comm/random_token.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cstdint>

#include "ddp_runtime/comm/errors.h"

namespace ddp::comm {

std::string random_token() {
  std::array<std::uint64_t, 2> words{};
  if (getrandom(words.data(), sizeof words, 0) != static_cast<ssize_t>(sizeof words)) {
    throw RuntimeError("the kernel gave no random numbers to name this job's connections by");
  }
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

bool same_secret(std::string_view guess, std::string_view secret) noexcept {
  unsigned different = guess.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < guess.size() && i < secret.size(); ++i) {
    different |= static_cast<unsigned char>(guess[i]) ^ static_cast<unsigned char>(secret[i]);
  }
  return different == 0;
}

}  // namespace ddp::comm
