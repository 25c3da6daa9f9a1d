// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/equal_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::elastic {
namespace {

constexpr std::size_t kLargestNumber = 1'000'000'000'000;

// The last value of an option, as `--option VALUE` or `--option=VALUE`.
std::optional<std::string_view> value_of(std::span<const std::string> arguments,
                                         std::string_view option) {
  std::optional<std::string_view> value;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (!argument.starts_with(option)) continue;
    const auto rest = argument.substr(option.size());
    if (rest.starts_with('=')) value = rest.substr(1);
    if (rest.empty() && i + 1 < arguments.size()) value = arguments[i + 1];
  }
  return value;
}

std::optional<std::size_t> number_of(std::span<const std::string> arguments,
                                     std::string_view option) {
  const auto value = value_of(arguments, option);
  if (!value) return std::nullopt;
  const auto number = parse_decimal(*value, kLargestNumber);
  return number && *number > 0 ? std::optional<std::size_t>(*number) : std::nullopt;
}

bool is_ddp_train(std::string_view word) {
  return word == "ddp-train" || word.ends_with("/ddp-train");
}

std::optional<std::span<const std::string>> arguments_of_ddp_train(
    std::span<const std::string> program) {
  const auto found = std::ranges::find_if(program, is_ddp_train);
  if (found == program.end()) return std::nullopt;
  return program.subspan(static_cast<std::size_t>(found - program.begin()) + 1);
}

}  // namespace

std::optional<std::string> option_of_ddp_train(std::span<const std::string> program,
                                               std::string_view option) {
  const auto arguments = arguments_of_ddp_train(program);
  const auto value = arguments ? value_of(*arguments, option) : std::nullopt;
  return value ? std::optional<std::string>(*value) : std::nullopt;
}

std::vector<std::string> with_options_of_ddp_train(std::vector<std::string> program,
                                                   const std::vector<std::string>& options) {
  const auto found = std::ranges::find_if(program, is_ddp_train);
  if (found != program.end()) program.insert(found + 1, options.begin(), options.end());
  return program;
}

std::optional<Divisible> divisible_by_ranks(std::span<const std::string> program) {
  const auto found = arguments_of_ddp_train(program);
  if (!found) return std::nullopt;
  const auto& arguments = *found;
  if (value_of(arguments, "--stages")) return std::nullopt;
  if (const auto blocks = number_of(arguments, "--blocks")) {
    return Divisible{*blocks, fmt::format("--blocks {} of ddp-train", *blocks)};
  }
  const auto batch = number_of(arguments, "--global-batch");
  if (!batch) return std::nullopt;
  const auto micro_batches = number_of(arguments, "--accumulate").value_or(1);
  // ddp-train itself has the better words for a batch that cannot be divided on any number.
  if (*batch % micro_batches != 0) return std::nullopt;
  return Divisible{*batch / micro_batches, fmt::format("--global-batch {} of ddp-train", *batch)};
}

std::vector<std::size_t> sizes_with_equal_parts(const Settings& settings,
                                                const Divisible& divisible) {
  std::vector<std::size_t> sizes;
  const auto per_node = static_cast<std::size_t>(settings.ranks_per_node);
  for (std::size_t nodes = settings.min_nodes; nodes <= settings.max_nodes; ++nodes) {
    if (divisible.number % (nodes * per_node) == 0) sizes.push_back(nodes);
  }
  if (sizes.empty()) {
    throw UsageError(fmt::format(
        "{} cannot be divided equally among {} to {} ranks ({} on each node); change "
        "--nodes, --ranks-per-node or that number",
        divisible.source, settings.min_nodes * per_node, settings.max_nodes * per_node, per_node));
  }
  return sizes;
}

}  // namespace ddp::elastic
