// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/edges.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ddp::pipeline {
namespace {

int color_of_edge(int edge, int ranks) {
  const bool closes_odd_ring = edge == ranks - 1 && ranks % 2 == 1;
  return closes_odd_ring ? 2 : edge % 2;
}

}  // namespace

std::vector<PipelineChannel> channels_of(int ranks, bool ring) {
  std::vector<PipelineChannel> channels;
  if (ranks < 2) return channels;
  const int edges = ring ? ranks : ranks - 1;
  for (const auto flow : {Flow::forward, Flow::backward}) {
    for (int color = 0; color < 3; ++color) {
      PipelineChannel channel{flow, color, {}};
      for (int edge = 0; edge < edges; ++edge) {
        if (color_of_edge(edge, ranks) != color) continue;
        Pair pair{edge, edge, (edge + 1) % ranks};
        if (flow == Flow::backward) std::swap(pair.from, pair.to);
        channel.pairs.push_back(pair);
      }
      if (!channel.pairs.empty()) channels.push_back(std::move(channel));
    }
  }
  return channels;
}

int pair_of(const PipelineChannel& channel, int rank) {
  const auto found =
      std::find_if(channel.pairs.begin(), channel.pairs.end(),
                   [&](const Pair& pair) { return pair.from == rank || pair.to == rank; });
  return found == channel.pairs.end() ? -1 : static_cast<int>(found - channel.pairs.begin());
}

}  // namespace ddp::pipeline
