// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/launcher_daemon.h"

#include <algorithm>
#include <array>

namespace ddp::launch {

bool is_launcher_daemon(std::string_view program) noexcept {
  // Open MPI 2-4, Open MPI 5 and PRRTE, MPICH and Intel MPI.
  constexpr std::array<std::string_view, 4> kDaemons = {"orted", "prted", "hydra_pmi_proxy",
                                                        "hydra_bstrap_proxy"};
  program.remove_prefix(program.rfind('/') + 1);  // npos + 1 is 0
  return std::find(kDaemons.begin(), kDaemons.end(), program) != kDaemons.end();
}

}  // namespace ddp::launch
