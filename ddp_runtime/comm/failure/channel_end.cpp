#include "ddp_runtime/comm/failure/channel_end.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

namespace ddp::comm {

std::string who_am_i() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("{}, process {}", host.data(), getpid());
}

Failure ended_without_a_word(int rank, const std::string& who) {
  return {.rank = rank,
          .text = fmt::format(
              "rank {} ({}) ended without a word: it was killed or crashed; see its last output "
              "lines, the kernel log (out of memory?) or whether the job was cancelled",
              rank, who),
          .lost = true};
}

}  // namespace ddp::comm
