// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/secret/random_token.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cstdint>

#include "base/errors.h"

namespace ddp::comm {

std::string random_token() {
  std::array<std::uint64_t, 2> words{};
  if (getrandom(words.data(), sizeof words, 0) != static_cast<ssize_t>(sizeof words)) {
    throw RuntimeError(
        "the kernel provided no random numbers for the names of this job's connections");
  }
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

}  // namespace ddp::comm
