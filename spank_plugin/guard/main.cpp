// SPDX-License-Identifier: Apache-2.0
// ddp-guard: the guard as a program of its own, which the plugin executes in each task. Its
// arguments are not for people: CHILD ERRORS RECORD REACH PEERS WHO NODE. It is static, because it
// also starts inside containers, where the libraries of the host are missing.
#include <fcntl.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>

#include "base/text.h"
#include "spank_plugin/guard/guard.h"

namespace ddp::guard {
namespace {

// Returns the number, or -1 for "none".
std::optional<int> number_of(std::string_view text) {
  if (text == "none") return -1;
  const auto number = parse_decimal(text, 1U << 30U);
  if (!number) return std::nullopt;
  return static_cast<int>(*number);
}

Peers peers_named(std::string_view text) noexcept {
  if (text == "workers") return Peers::own_workers;
  return text == "none" ? Peers::none : Peers::other_ranks;
}

int usage() {
  std::fputs(
      "ddp-guard: the plugin of slurm-ddp starts this program, in tasks under --ddp=watch; "
      "use ddp-launch --watch\n",
      stderr);
  return 2;
}

int run(int count, char** arguments) {
  if (count != 8) return usage();
  const auto child = number_of(arguments[1]);
  const auto errors = number_of(arguments[2]);
  const auto record = number_of(arguments[3]);
  // kill(2) takes 0 and -1 for many processes.
  if (!child || *child <= 1 || !errors || !record) return usage();
  guard_task({static_cast<pid_t>(*child), FileDescriptor(*errors)},
             {arguments[6], arguments[7], *record, std::string_view(arguments[4]) == "all",
              peers_named(arguments[5])});
}

}  // namespace
}  // namespace ddp::guard

int main(int argc, char** argv) {
  try {
    return ddp::guard::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddp-guard: %s\n", error.what());
    return 1;
  }
}
