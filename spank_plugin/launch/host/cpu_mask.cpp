// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/host/cpu_mask.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/text_file.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMaxCpus = 65'536;

// Returns the numbers of the CPUs in the mask, ascending; empty if the kernel does not report them.
std::vector<std::uint32_t> cpus_in_mask() {
  for (std::size_t count = CPU_SETSIZE; count <= kMaxCpus; count *= 2) {
    std::vector<cpu_set_t> mask(CPU_ALLOC_SIZE(count) / sizeof(cpu_set_t));
    const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) != 0) continue;  // the node has more CPUs
    std::vector<std::uint32_t> cpus;
    for (std::uint32_t cpu = 0; cpu < count; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.data())) cpus.push_back(cpu);
    }
    return cpus;
  }
  return {};
}

}  // namespace

std::optional<CpuFacts> read_cpu_mask(const std::string& cpu_root) noexcept {
  constexpr std::size_t kMaxList = 4096;
  try {
    const auto cpus = cpus_in_mask();
    if (cpus.empty()) return std::nullopt;
    std::set<std::string> cores;
    for (const auto cpu : cpus) {
      const std::string name = std::to_string(cpu);
      std::string file = cpu_root;
      file.append("/cpu").append(name).append("/topology/thread_siblings_list");
      cores.insert(read_text(file, kMaxList).value_or(name));
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return CpuFacts{static_cast<std::uint32_t>(cpus.size()),
                    static_cast<std::uint32_t>(cores.size()),
                    static_cast<std::uint32_t>(std::max<long>(online, 1)), cpus};
  } catch (...) {  // out of memory: the mask is unknown
    return std::nullopt;
  }
}

}  // namespace ddp::launch
