// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/tcp/tcp_plan.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <span>

#include "base/text.h"
#include "ddp_runtime/comm/node/machine_key.h"

namespace ddp::comm {
namespace {

std::optional<int> number(const char* text, int least, int most) {
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < least || value > most) return std::nullopt;
  return value;
}

struct Number {
  const char* name;
  int least;
  int most;
  int value = 0;
};

// One sentence if a variable is missing or malformed.
std::optional<std::string> read(const VariableOf& variable, std::span<Number> numbers) {
  for (Number& each : numbers) {
    const char* const text = variable(each.name);
    if (text == nullptr) return fmt::format("{} is not set", each.name);
    const auto value = number(text, each.least, each.most);
    if (!value) {
      return fmt::format("{}={} is not a number from {} to {}", each.name, quote_for_display(text),
                         each.least, each.most);
    }
    each.value = *value;
  }
  return std::nullopt;
}

std::optional<std::string> disagreement(const VariableOf& variable, const char* launchers,
                                        const Number& ours) {
  const char* const text = variable(launchers);
  if (text == nullptr || number(text, 0, INT32_MAX) == ours.value) return std::nullopt;
  return fmt::format("{}={}, but {}={}", ours.name, ours.value, launchers, quote_for_display(text));
}

// A plan that a batch script exported is not that of the steps which it starts. Ranks of mpirun
// inherit SLURM's variables from the script, or from mpirun's daemons.
std::optional<std::string> disagreement(const VariableOf& variable, const Number& rank,
                                        const Number& ranks) {
  const bool by_mpirun = variable("OMPI_COMM_WORLD_SIZE") != nullptr;
  auto found =
      disagreement(variable, by_mpirun ? "OMPI_COMM_WORLD_SIZE" : "SLURM_STEP_NUM_TASKS", ranks);
  return found ? found
               : disagreement(variable, by_mpirun ? "OMPI_COMM_WORLD_RANK" : "SLURM_PROCID", rank);
}

}  // namespace

std::optional<TcpPlan> tcp_plan(const VariableOf& variable, const std::optional<Key>& step_key,
                                std::string* why) {
  Number numbers[] = {
      {"MASTER_PORT", 1, 65535}, {"RANK", 0, INT32_MAX}, {"WORLD_SIZE", 1, INT32_MAX}};
  const auto& [port, rank, ranks] = numbers;
  const char* const leader = variable("MASTER_ADDR");
  std::optional<std::string> problem;
  if (leader == nullptr || *leader == '\0') problem = "MASTER_ADDR is not set";
  if (!problem) problem = read(variable, numbers);
  if (!problem && rank.value >= ranks.value) {
    problem = fmt::format("RANK={} is not below WORLD_SIZE={}", rank.value, ranks.value);
  }
  if (!problem) problem = disagreement(variable, rank, ranks);
  if (problem) {
    if (why != nullptr) {
      *why = fmt::format(
          "ranks that connect over TCP need a launch plan, but {}; start the step with srun --ddp, "
          "or the program with ddp-launch",
          *problem);
    }
    return std::nullopt;
  }
  TcpPlan plan{leader, static_cast<std::uint16_t>(port.value), rank.value, ranks.value, {}, {}};
  plan.key =
      hmac_sha256(step_key ? std::span<const std::byte>(*step_key) : std::span<const std::byte>(),
                  fmt::format("data path {}", plan.port));
  plan.node = machine_key();
  return plan;
}

}  // namespace ddp::comm
