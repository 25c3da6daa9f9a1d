// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/report/processors.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

namespace ddp::train {

std::vector<int> usable_processors() {
  constexpr int kMax = 65536;
  const auto release = [](cpu_set_t* set) { CPU_FREE(set); };
  const std::unique_ptr<cpu_set_t, decltype(release)> set(CPU_ALLOC(kMax), release);
  const std::size_t bytes = CPU_ALLOC_SIZE(kMax);
  if (!set || sched_getaffinity(0, bytes, set.get()) != 0) return {};
  std::vector<int> processors;
  for (int cpu = 0; cpu < kMax; ++cpu) {
    if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get())) processors.push_back(cpu);
  }
  return processors;
}

std::string processor_list(const std::vector<int>& processors) {
  std::string text;
  for (std::size_t i = 0; i < processors.size();) {
    std::size_t last = i;
    while (last + 1 < processors.size() && processors[last + 1] == processors[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", processors[i]);
    if (last > i) text += fmt::format("-{}", processors[last]);
    i = last + 1;
  }
  return text;
}

std::int64_t involuntary_switches() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

double process_age_seconds() {
  std::string stat;
  std::getline(std::ifstream("/proc/self/stat"), stat);
  // The name, in parentheses, may contain anything; the start time is the 20th field after it.
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < 19; ++i) fields >> skipped;
  double start_ticks = 0;
  double up_seconds = 0;
  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (!(fields >> start_ticks) || !(std::ifstream("/proc/uptime") >> up_seconds)) return 0;
  const double age = up_seconds - start_ticks / ticks_per_second;
  return age > 0 ? age : 0;
}

}  // namespace ddp::train
