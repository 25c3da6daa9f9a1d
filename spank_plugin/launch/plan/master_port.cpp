// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/master_port.h"

#include <algorithm>

#include "spank_plugin/launch/step/port_ranges.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMaxCandidates = 64;

std::string key_rule(Launcher launcher) {
  switch (launcher) {
    case Launcher::slurm:
      return "computed from job, step and restart number";
    case Launcher::open_mpi:
      return "computed from the name that mpirun gave the job";
    case Launcher::none:
      break;
  }
  return "computed from the process number";
}

std::string key_source(Launcher launcher) {
  switch (launcher) {
    case Launcher::slurm:
      return "SLURM_JOB_ID, SLURM_STEP_ID";
    case Launcher::open_mpi:
      return "PMIX_NAMESPACE";
    case Launcher::none:
      break;
  }
  return "getpid";
}

// Returns the ports that SLURM reserved for the step and that no other service of the step uses,
// lowest first.
std::vector<std::uint16_t> reserved_ports(const StepFacts& step) {
  auto ports = all_ports(parse_port_ranges(step.reserved_ports, "SLURM_STEP_RESV_PORTS"));
  if (step.pmi_port) std::erase(ports, *step.pmi_port);
  return ports;
}

// Returns `count` ports that are one part in `parts` of the range away from MASTER_PORT, at most
// half of the range.
std::vector<std::uint16_t> computed_ports(const StepFacts& step, const Settings& settings,
                                          std::uint64_t parts, std::uint32_t count) {
  const PortRange range = settings.computed_ports.value;
  const std::uint64_t size = range.last - range.first + 1U;
  const std::uint64_t start = step.port_key % size + size / parts;
  std::vector<std::uint16_t> ports;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count, size / 2); ++i) {
    ports.push_back(static_cast<std::uint16_t>(range.first + (start + i) % size));
  }
  return ports;
}

}  // namespace

PortChoice choose_port(const StepFacts& step, const Settings& settings) {
  auto ports = reserved_ports(step);
  if (!ports.empty()) {
    ports.resize(std::min(ports.size(), kMaxCandidates));
    return {std::move(ports), "reserved by SLURM for this step", "SLURM_STEP_RESV_PORTS"};
  }
  const PortRange range = settings.computed_ports.value;
  const std::uint64_t count = range.last - range.first + 1U;
  PortChoice choice{{}, key_rule(step.launcher), key_source(step.launcher)};
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count, kMaxCandidates); ++i) {
    const auto port = static_cast<std::uint16_t>(range.first + (step.port_key % count + i) % count);
    if (port != step.pmi_port || count == 1) choice.candidates.push_back(port);
  }
  return choice;
}

std::vector<std::uint16_t> service_ports(const StepFacts& step, const Settings& settings,
                                         std::uint32_t count) {
  if (auto ports = reserved_ports(step); !ports.empty()) {
    ports.erase(ports.begin());
    ports.resize(std::min<std::size_t>(ports.size(), count));
    return ports;
  }
  return computed_ports(step, settings, 2, count);
}

std::vector<std::uint16_t> watch_ports(const StepFacts& step, const Settings& settings) {
  constexpr std::uint32_t kCandidates = 4;
  constexpr std::uint32_t kSmallestRange = 16;  // in which neighboring steps would often meet
  const PortRange range = settings.computed_ports.value;
  if (range.last - range.first + 1U < kSmallestRange) return {};
  return computed_ports(step, settings, 4, kCandidates);
}

}  // namespace ddp::launch
