// SPDX-License-Identifier: Apache-2.0
// ddp-guard: the guard as a program of its own, which the plugin executes in each task. Its
// arguments are not for people; see guard_options.h. It is static, because it also starts inside
// containers, where the libraries of the host are missing.
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

#include "spank_plugin/guard/guard.h"
#ifdef SLURM_DDP_GUARD_LINK
#include "base/secret/key.h"
#include "spank_plugin/guard/tcp_node_link.h"
#endif

namespace ddp::guard {
namespace {

int usage() {
  std::fputs(
      "ddp-guard: the plugin of slurm-ddp starts this program, in tasks under --ddp=watch; "
      "use ddp-launch --watch\n",
      stderr);
  return 2;
}

// Without OpenSSL's static library, the guards of different nodes know nothing of each other.
MakeLink link_maker() {
#ifdef SLURM_DDP_GUARD_LINK
  mallopt(M_ARENA_MAX, 1);  // its thread needs no memory of its own
  ignore_openssl_settings();
  return make_tcp_link;
#else
  return {};
#endif
}

int run(int count, char** arguments) {
  const std::vector<std::string_view> words(arguments + std::min(count, 1), arguments + count);
  const auto parsed = parse_arguments(words);
  if (!parsed) return usage();
  guard_task({parsed->child, FileDescriptor(parsed->errors)}, parsed->options, link_maker());
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
