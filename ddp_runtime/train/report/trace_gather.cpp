// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/report/trace_gather.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/profile/merged_trace.h"

namespace ddp::train {
namespace {

using nlohmann::json;

constexpr const char* kLabel = "trace";

// The same for all processes that read this process's steady clock: those of one machine, unless
// they are in a time namespace (time_namespaces(7)).
std::string clock_name(const comm::Group& group) {
  std::error_code error;
  const auto name_space = std::filesystem::read_symlink("/proc/self/ns/time", error);
  return group.machine_key() + " " + (error ? "" : name_space.string());
}

// On rank 0: the ranks whose trace it wants.
std::vector<int> wanted_ranks(const json& ranks) {
  std::vector<double> waiting;
  std::vector<std::string> nodes;
  for (const auto& rank : ranks) {
    const auto& seconds = rank.at("step_seconds").at("waiting");
    waiting.push_back(seconds.is_number() ? seconds.get<double>() : 0);
    nodes.push_back(rank.at("node").get<std::string>());
  }
  return profile::traced_ranks(waiting, nodes, kMaxTracedRanks);
}

// Messages, not a collective: of 4,096 ranks, none has to hold the traces of all.
void send_text(comm::Group& group, std::string text) {
  auto length = static_cast<std::int64_t>(text.size());
  group.send(comm::buffer_of(length), 0, kLabel).wait();
  if (length > 0) group.send(comm::buffer_of(std::span(text)), 0, kLabel).wait();
}

std::string receive_text(comm::Group& group, int rank) {
  std::int64_t length = 0;
  group.receive(comm::buffer_of(length), rank, kLabel).wait();
  std::string text(static_cast<std::size_t>(length), '\0');
  if (length > 0) group.receive(comm::buffer_of(std::span(text)), rank, kLabel).wait();
  return text;
}

}  // namespace

std::string gather_trace(comm::Group& group, const profile::StepRecorder& recorder,
                         const json& ranks, const std::string& node) {
  const bool leader = group.rank() == 0;
  const auto wanted =
      json::parse(group.broadcast_text(leader ? json(wanted_ranks(ranks)).dump() : "", 0))
          .get<std::vector<int>>();
  const profile::RankTrace mine{group.rank(), node, clock_name(group), recorder.recent_events()};
  if (!leader) {
    if (std::ranges::binary_search(wanted, group.rank())) send_text(group, to_text(mine));
    return "";
  }
  std::vector<profile::RankTrace> traces;
  for (const int rank : wanted) {
    traces.push_back(rank == 0 ? mine : profile::parse_trace(receive_text(group, rank)));
  }
  return merged_trace(traces);
}

}  // namespace ddp::train
