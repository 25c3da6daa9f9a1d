// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/processor_check.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <memory>

namespace ddp::check {
namespace {

constexpr int kMaxProcessors = 65536;

std::optional<int> count_usable() {
  const auto free_set = [](cpu_set_t* set) { CPU_FREE(set); };
  const std::unique_ptr<cpu_set_t, decltype(free_set)> set(CPU_ALLOC(kMaxProcessors), free_set);
  const std::size_t bytes = CPU_ALLOC_SIZE(kMaxProcessors);
  if (!set || sched_getaffinity(0, bytes, set.get()) != 0) return std::nullopt;
  return CPU_COUNT_S(bytes, set.get());
}

}  // namespace

ProcessorFacts read_processors(const Environment& environment) {
  ProcessorFacts facts;
  facts.usable = count_usable();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  if (online > 0) facts.online = static_cast<int>(online);
  facts.promised = integer(environment, "SLURM_CPUS_PER_TASK");
  return facts;
}

Finding evaluate_processors(const ProcessorFacts& facts) {
  Finding finding{.check = "cpu.affinity",
                  .severity = Severity::ok,
                  .unit = "cpus",
                  .rule = "the task may use as many CPUs as SLURM_CPUS_PER_TASK promises"};
  if (!facts.usable) {
    finding.severity = Severity::unknown;
    finding.evidence = "sched_getaffinity failed";
    finding.action = "run the check on the node itself";
    return finding;
  }
  finding.value = static_cast<double>(*facts.usable);
  if (facts.online) finding.evidence = fmt::format("{} CPUs online", *facts.online);
  if (!facts.promised) return finding;
  finding.expected = fmt::format("at least {}", *facts.promised);
  if (*facts.usable < *facts.promised) {
    finding.severity = Severity::warning;
    finding.action = "several threads share a CPU: check --cpus-per-task against --cpu-bind";
  }
  return finding;
}

}  // namespace ddp::check
