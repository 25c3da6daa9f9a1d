// SPDX-License-Identifier: Apache-2.0
#include "bench/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "bench/recording_transport.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/schedules/chain.h"
#include "ddp_runtime/comm/schedules/schedules.h"
#include "ddp_runtime/comm/transport/mpi/mpi_transport.h"

namespace ddp::bench {
namespace {

using nlohmann::json;
using Schedule = void (*)(comm::Link&, const comm::Subgroup&, comm::Buffer, comm::ReduceOp,
                          comm::schedules::Scratch&);

Schedule schedule_of(const std::string& name) {
  if (name == "ring") return comm::schedules::all_reduce_ring;
  if (name == "halving") return comm::schedules::all_reduce_halving;
  if (name == "doubling") return comm::schedules::all_reduce_doubling;
  if (name == "chain") return comm::schedules::all_reduce_chain;
  throw UsageError(
      fmt::format("unknown schedule '{}'; use ring, halving, doubling or chain", name));
}

double seconds(comm::Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// The messages that this rank sent or received.
json ends_of(const RecordingTransport& transport) {
  json ends = json::array();
  for (const auto& m : transport.messages()) {
    ends.push_back({{"sent", m.sent},
                    {"peer", m.peer},
                    {"bytes", m.bytes},
                    {"seconds", seconds(m.sent ? m.posted : m.completed)}});
  }
  return ends;
}

// Messages from one rank to another arrive in order: the k-th send matches the k-th receive.
json joined(const std::vector<std::string>& ends_by_rank) {
  std::map<std::pair<int, int>, std::vector<json>> sends;
  std::map<std::pair<int, int>, std::vector<json>> receives;
  for (std::size_t r = 0; r < ends_by_rank.size(); ++r) {
    for (const auto& end : json::parse(ends_by_rank[r])) {
      const auto rank = static_cast<int>(r);
      const int peer = end.at("peer");
      if (end.at("sent").get<bool>()) {
        sends[{rank, peer}].push_back(end);
      } else {
        receives[{peer, rank}].push_back(end);
      }
    }
  }
  std::vector<json> messages;
  for (const auto& [pair, list] : sends) {
    for (std::size_t k = 0; k < list.size(); ++k) {
      messages.push_back({{"from", pair.first},
                          {"to", pair.second},
                          {"bytes", list[k].at("bytes")},
                          {"posted", list[k].at("seconds")},
                          {"arrived", receives.at(pair).at(k).at("seconds")}});
    }
  }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const json& a, const json& b) { return a["posted"] < b["posted"]; });
  return messages;
}

void count_from_first(json& messages) {
  if (messages.empty()) return;
  const auto first = messages.front().at("posted").get<double>();
  for (auto& m : messages) {
    m["posted"] = m["posted"].get<double>() - first;
    m["arrived"] = m["arrived"].get<double>() - first;
  }
}

}  // namespace

json run_timeline(comm::World& world, const TimelineOptions& options) {
  const Schedule schedule = schedule_of(options.schedule);
  comm::Group& group = world.group();
  if (group.backend() != "mpi") throw UsageError("a timeline needs two ranks under srun or mpirun");
  comm::FailureState failures;
  RecordingTransport transport(comm::make_mpi_transport(failures));
  comm::Link link(transport, failures, options.limits);
  const auto all_ranks = comm::Subgroup::all(world.rank(), world.size());
  comm::schedules::Scratch scratch;
  std::vector<float> data(static_cast<std::size_t>(options.kib * 1024 / sizeof(float)), 1);
  for (const int run : {0, 1}) {
    group.barrier("timeline").wait();
    transport.forget();
    link.begin(run, options.schedule);
    schedule(link, all_ranks, comm::buffer_of(std::span(data)), comm::ReduceOp::sum, scratch);
  }
  json messages = joined(group.all_gather_text(ends_of(transport).dump()));
  count_from_first(messages);
  return {{"benchmark", "timeline"},
          {"schedule", options.schedule},
          {"world_size", world.size()},
          {"kib", options.kib},
          {"segment_bytes", options.limits.segment_bytes},
          {"messages", std::move(messages)}};
}

}  // namespace ddp::bench
