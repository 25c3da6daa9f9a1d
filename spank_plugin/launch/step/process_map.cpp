// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/process_map.h"

#include <array>

#include "base/hostlist.h"
#include "base/text.h"

namespace ddp::launch {
namespace {

// "start,nodes,ranks": `ranks` consecutive ranks on each of `nodes` nodes beginning at `start`.
struct Block {
  std::uint64_t start = 0;
  std::uint64_t nodes = 0;
  std::uint64_t ranks = 0;
};

std::optional<Block> parse_block(std::string_view text) {
  const auto fields = split(text, ',');
  if (fields.size() != 3) return std::nullopt;
  std::array<std::uint64_t, 3> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto number = parse_decimal(fields[i], 0x7fff'ffff);
    if (!number) return std::nullopt;
    numbers[i] = *number;
  }
  return Block{numbers[0], numbers[1], numbers[2]};
}

}  // namespace

std::optional<std::uint32_t> node_of_rank_zero(std::string_view text, std::uint32_t tasks,
                                               std::uint32_t nodes) {
  constexpr std::string_view kStart = "(vector,";
  if (text.size() > kMaxListText || !text.starts_with(kStart)) return std::nullopt;
  text.remove_prefix(kStart.size());
  std::optional<std::uint32_t> first_node;
  std::uint64_t ranks = 0;
  while (text.starts_with("(")) {
    const auto close = text.find(')');
    if (close == std::string_view::npos) return std::nullopt;
    const auto block = parse_block(text.substr(1, close - 1));
    if (!block || block->nodes == 0 || block->ranks == 0) return std::nullopt;
    if (block->start + block->nodes > nodes) return std::nullopt;
    if (!first_node) first_node = static_cast<std::uint32_t>(block->start);
    ranks += block->nodes * block->ranks;
    if (ranks > tasks) return std::nullopt;
    text.remove_prefix(close + 1);
    if (text.starts_with(",")) text.remove_prefix(1);
  }
  if (text != ")" || ranks != tasks) return std::nullopt;
  return first_node;
}

}  // namespace ddp::launch
