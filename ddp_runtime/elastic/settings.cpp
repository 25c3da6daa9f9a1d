// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"

namespace ddp::elastic {

void require_possible(const Settings& settings, std::size_t nodes) {
  if (settings.min_nodes < 1 || settings.min_nodes > settings.max_nodes) {
    throw UsageError(fmt::format("--nodes {}:{} is not a range of node numbers from 1",
                                 settings.min_nodes, settings.max_nodes));
  }
  if (nodes < settings.min_nodes) {
    throw UsageError(
        fmt::format("--nodes asks for at least {} nodes, but the job has {}; ask for more in "
                    "sbatch, or for fewer here",
                    settings.min_nodes, nodes));
  }
  if (largest_size(settings, settings.max_nodes) == 0) {
    throw UsageError(fmt::format("no allowed number of nodes is between {} and {}",
                                 settings.min_nodes, settings.max_nodes));
  }
}

std::size_t largest_size(const Settings& settings, std::size_t available) {
  const std::size_t most = std::min(available, settings.max_nodes);
  if (settings.sizes.empty()) return most >= settings.min_nodes ? most : 0;
  std::size_t largest = 0;
  for (const std::size_t size : settings.sizes) {
    if (size >= settings.min_nodes && size <= most) largest = std::max(largest, size);
  }
  return largest;
}

}  // namespace ddp::elastic
