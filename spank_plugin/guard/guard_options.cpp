// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/guard_options.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace ddp::guard {
namespace {

constexpr std::string_view kNone = "-";

constexpr char kListSeparator = ',';

std::string file_number(int file) {
  return file < 0 ? std::string(kNone) : std::to_string(file);
}

std::string ports_in_words(const std::vector<std::uint16_t>& ports) {
  std::vector<std::string> words;
  for (const auto port : ports) words.push_back(std::to_string(port));
  return join(words, std::string(1, kListSeparator));
}

std::vector<std::string> list_in(std::string_view words) {
  if (words.empty()) return {};
  const auto list = split(words, kListSeparator);
  return {list.begin(), list.end()};
}

std::optional<HubPlace> parse_hub(std::string_view ports, std::string_view addresses) {
  HubPlace hub{list_in(addresses), {}};
  for (const auto& word : list_in(ports)) {
    const auto port = parse_decimal(word, UINT16_MAX);
    if (!port) return std::nullopt;
    hub.ports.push_back(static_cast<std::uint16_t>(*port));
  }
  return hub;
}

}  // namespace

std::string GuardOptions::who() const {
  return (is_agent ? "torchrun's agent " : "rank ") + std::to_string(rank);
}

std::string GuardOptions::subject() const {
  return who() + (node.empty() ? "" : " (" + node + ")");
}

Peers GuardOptions::peers() const noexcept {
  if (is_agent) return Peers::own_workers;
  return task_count == 1 ? Peers::none : Peers::other_ranks;
}

std::vector<std::string> format_arguments(const GuardArguments& arguments) {
  const GuardOptions& options = arguments.options;
  return {std::to_string(arguments.child),
          file_number(arguments.errors),
          file_number(options.node_record),
          std::to_string(options.rank),
          std::to_string(options.task_count),
          std::to_string(options.local_rank),
          std::to_string(options.local_task_count),
          options.is_agent ? "1" : "0",
          options.launcher_reaches_all ? "1" : "0",
          std::to_string(options.stall.count()),
          options.ends_on_failure ? "1" : "0",
          options.ends_on_stall ? "1" : "0",
          ports_in_words(options.hub.ports),
          join(options.hub.addresses, std::string(1, kListSeparator)),
          options.node};
}

std::optional<GuardArguments> parse_arguments(std::span<const std::string_view> words) {
  std::array<std::int64_t, 12> numbers{};
  if (words.size() != numbers.size() + 3) return std::nullopt;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto number = parse_decimal(words[i], 1U << 30U);
    const bool is_file = i == 1 || i == 2;
    if (!number && !(is_file && words[i] == kNone)) return std::nullopt;
    numbers[i] = number ? static_cast<std::int64_t>(*number) : -1;
  }
  if (numbers[0] <= 1) return std::nullopt;
  auto hub = parse_hub(words[numbers.size()], words[numbers.size() + 1]);
  if (!hub) return std::nullopt;
  const auto count = [&numbers](std::size_t i) { return static_cast<std::uint32_t>(numbers[i]); };
  return GuardArguments{static_cast<pid_t>(numbers[0]), static_cast<int>(numbers[1]),
                        GuardOptions{count(3),
                                     count(4),
                                     count(5),
                                     count(6),
                                     numbers[7] != 0,
                                     numbers[8] != 0,
                                     std::chrono::seconds(numbers[9]),
                                     numbers[10] != 0,
                                     numbers[11] != 0,
                                     std::string(words.back()),
                                     static_cast<int>(numbers[2]),
                                     *std::move(hub),
                                     {}}};
}

}  // namespace ddp::guard
