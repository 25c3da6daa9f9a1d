// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/tcp/tcp_plan.h"

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

// A plan that a batch script exported is not that of the steps which it starts.
std::optional<std::string> disagreement(const VariableOf& variable, const char* slurms,
                                        const Number& ours) {
  const char* const text = variable(slurms);
  if (text == nullptr || number(text, 0, INT32_MAX) == ours.value) return std::nullopt;
  return fmt::format("{}={}, but {}={}", ours.name, ours.value, slurms, quote_for_display(text));
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
  if (!problem) problem = disagreement(variable, "SLURM_STEP_NUM_TASKS", ranks);
  if (!problem) problem = disagreement(variable, "SLURM_PROCID", rank);
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
                  fmt::format("data path {} {}", plan.leader, plan.port));
  plan.node = machine_key();
  return plan;
}

}  // namespace ddp::comm
