#include "ddp_runtime/check/net/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "ddp_runtime/check/net/node_list.h"
#include "ddp_runtime/check/net/pattern.h"
#include "ddp_runtime/comm/errors.h"

namespace ddp::check {
namespace {

// Above the range from which the kernel gives ports to outgoing connections.
constexpr int kFirstPort = 61000;
constexpr int kPorts = 4536;

int required(const Environment& environment, const std::string& name) {
  const auto value = integer(environment, name);
  if (!value || *value < 0) {
    throw UsageError(fmt::format("{} is '{}', not a number; start ddp-check with srun or mpirun",
                                 name, environment(name).value_or("")));
  }
  return *value;
}

void read_mpirun_step(const Environment& environment, const std::string& host_name, Step& step) {
  step.rank = required(environment, "OMPI_COMM_WORLD_RANK");
  step.size = required(environment, "OMPI_COMM_WORLD_SIZE");
  step.node = environment("SLURMD_NODENAME").value_or(host_name);
  step.identity = environment("PMIX_NAMESPACE").value_or("mpirun");
  if (integer(environment, "OMPI_COMM_WORLD_LOCAL_SIZE") == step.size) {
    step.leader_host = "127.0.0.1";
    if (step.size > 0) step.nodes = {{step.node, step.size}};
  }
}

void read_slurm_step(const Environment& environment, Step& step) {
  step.rank = required(environment, "SLURM_PROCID");
  step.size = required(environment, "SLURM_STEP_NUM_TASKS");
  const auto names = expand_node_list(environment("SLURM_STEP_NODELIST").value_or(""));
  const auto tasks = expand_task_counts(environment("SLURM_STEP_TASKS_PER_NODE").value_or(""));
  if (names.size() != tasks.size()) {
    throw UsageError(
        fmt::format("SLURM_STEP_NODELIST has {} nodes but SLURM_STEP_TASKS_PER_NODE has {} counts",
                    names.size(), tasks.size()));
  }
  for (std::size_t i = 0; i < names.size(); ++i) step.nodes.push_back({names[i], tasks[i]});
  const auto own = static_cast<std::size_t>(required(environment, "SLURM_NODEID"));
  if (own >= names.size()) throw UsageError("SLURM_NODEID lies outside SLURM_STEP_NODELIST");
  step.node = names[own];
  step.leader_host = names.front();
  step.identity = fmt::format("slurm {}.{}", environment("SLURM_JOB_ID").value_or("?"),
                              environment("SLURM_STEP_ID").value_or("?"));
}

void pretend(const std::string& list, Step& step) {
  const auto names = expand_node_list(list);
  const auto count = static_cast<int>(names.size());
  if (count > step.size) {
    throw UsageError(fmt::format("--pretend-nodes names {} nodes for {} tasks", count, step.size));
  }
  step.nodes.clear();
  for (int i = 0; i < count; ++i) {
    const int first = (i * step.size + count - 1) / count;
    const int end = ((i + 1) * step.size + count - 1) / count;
    step.nodes.push_back({names[static_cast<std::size_t>(i)], end - first});
  }
  step.node = names[static_cast<std::size_t>(step.rank * count / step.size)];
  step.pretended = true;
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535) {
    return std::nullopt;
  }
  return static_cast<std::uint16_t>(port);
}

// Neighbouring job ids never share a port, and the steps of one job do not meet its neighbours':
// 1009 and 257 are primes.
std::uint16_t derived_port(const Environment& environment, const Step& step) {
  const auto job = integer(environment, "SLURM_JOB_ID");
  if (job && *job >= 0) {
    const std::int64_t mixed =
        *job + 1009 * std::int64_t{integer(environment, "SLURM_STEP_ID").value_or(0)} +
        257 * std::int64_t{integer(environment, "SLURM_RESTART_COUNT").value_or(0)};
    return static_cast<std::uint16_t>(kFirstPort + mixed % kPorts);
  }
  std::uint64_t hash = 0;
  for (const char c : step.identity) hash = pattern_word(hash, static_cast<unsigned char>(c));
  return static_cast<std::uint16_t>(kFirstPort + static_cast<int>(hash % kPorts));
}

std::uint16_t choose_port(const Environment& environment, const Step& step,
                          const StepOptions& options) {
  if (options.port) return *options.port;
  if (const auto text = environment("MASTER_PORT")) {
    const auto port = parse_port(*text);
    if (!port) throw UsageError(fmt::format("MASTER_PORT is '{}', not a port", *text));
    return *port;
  }
  if (const auto reserved = environment("SLURM_STEP_RESV_PORTS")) {
    if (const auto port = parse_port(std::string_view(*reserved).substr(0, reserved->find('-')))) {
      return *port;
    }
  }
  return derived_port(environment, step);
}

void require_sense(const Step& step) {
  if (step.size < 1 || step.size > 1'000'000 || step.rank < 0 || step.rank >= step.size) {
    throw UsageError(fmt::format("this is task {} of {}, which cannot be", step.rank, step.size));
  }
}

}  // namespace

Step step_from(const Environment& environment, const std::string& host_name,
               const StepOptions& options) {
  Step step;
  step.node = host_name;
  step.identity = "alone";
  if (environment("OMPI_COMM_WORLD_SIZE")) {
    read_mpirun_step(environment, host_name, step);
  } else if (environment("SLURM_STEP_NUM_TASKS")) {
    read_slurm_step(environment, step);
  } else {
    step.nodes = {{host_name, 1}};
    step.leader_host = "127.0.0.1";
  }
  require_sense(step);
  if (const auto leader = environment("MASTER_ADDR"); leader && !leader->empty()) {
    step.leader_host = *leader;
  }
  if (step.leader_host.empty()) {
    throw UsageError(
        "nothing says on which node rank 0 is; set MASTER_ADDR to its name (mpirun -x "
        "MASTER_ADDR=...), or start ddp-check with srun");
  }
  if (!options.pretend_nodes.empty()) pretend(options.pretend_nodes, step);
  if (step.size > 1 || options.port) step.leader_port = choose_port(environment, step, options);
  return step;
}

}  // namespace ddp::check
