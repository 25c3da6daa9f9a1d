// SPDX-License-Identifier: Apache-2.0
// Ranks that only communicate, with the default options of a job, to test which events stop them.
// Each rank writes its process ID to DIRECTORY/pid.R once it is running.
//
// Usage: comm_ranks barriers SECONDS DIRECTORY     consecutive barriers for this long
//        comm_ranks all-to-all BYTES DIRECTORY     every rank sends to all, then receives
//        comm_ranks throw-42 0 DIRECTORY           rank 1 throws an int
//        comm_ranks parts SECONDS DIRECTORY        consecutive all-reduces in two groups, of the
//        even
//                                                  and of the odd ranks, in memory from allocate()
//        comm_ranks shards SECONDS DIRECTORY       the same with reduce-scatters and all-gathers
//        comm_ranks circle 0 DIRECTORY             each rank waits in a group with the next one
//        comm_ranks computes 0 DIRECTORY           no collective until DIRECTORY/computed exists
// COMM_RANKS_TIMEOUT=SECONDS: the timeout for each wait.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/world.h"

namespace {

using ddp::comm::World;

void barriers(World& world, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  std::int64_t go_on = 1;
  while (go_on == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    go_on = world.group().all_reduce_value<std::int64_t>(time.count() < seconds ? 1 : 0,
                                                         ddp::comm::ReduceOp::min);
  }
}

// Posts all sends before all receives, twice, with a collective between the messages.
void all_to_all(World& world, std::size_t bytes) {
  auto& group = world.group();
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t count = bytes / sizeof(std::int64_t);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::vector<std::int64_t>> out(ranks);
    std::vector<std::vector<std::int64_t>> in(ranks);
    std::vector<ddp::comm::Work> works;
    for (int peer = 0; peer < group.size(); ++peer) {
      if (peer == group.rank()) continue;
      auto& data = out[static_cast<std::size_t>(peer)];
      data.assign(count, 1000 * group.rank() + peer + round);
      works.push_back(group.send(ddp::comm::buffer_of(std::span(data)), peer));
    }
    group.barrier("between the messages").wait();
    for (int peer = 0; peer < group.size(); ++peer) {
      if (peer == group.rank()) continue;
      auto& data = in[static_cast<std::size_t>(peer)];
      data.resize(count);
      works.push_back(group.receive(ddp::comm::buffer_of(std::span(data)), peer));
    }
    for (const auto& work : works) work.wait();
    for (int peer = 0; peer < group.size(); ++peer) {
      for (const auto value : in[static_cast<std::size_t>(peer)]) {
        if (value != 1000 * peer + group.rank() + round) {
          throw std::runtime_error(fmt::format("rank {} sent {}", peer, value));
        }
      }
    }
  }
  if (world.is_leader()) fmt::print("{} ranks have exchanged {} bytes\n", ranks, bytes);
}

// The even ranks add more numbers than the odd ones, so that mixed messages would be noticed.
void in_parts(World& world, double seconds, bool in_shards) {
  auto& part = *world.group().split(world.rank() % 2, 0, world.rank() % 2 == 0 ? "even" : "odd");
  const std::size_t count = world.rank() % 2 == 0 ? 30000 : 10000;
  const auto memory = part.allocate(count * sizeof(float));
  const std::span values(reinterpret_cast<float*>(memory.get()), count);
  float expected = 0;
  for (int rank = 0; rank < part.size(); ++rank) expected += part.world_rank(rank);
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t go_on = 1; go_on == 1;) {
    std::fill(values.begin(), values.end(), world.rank());
    const auto data = ddp::comm::buffer_of(values);
    if (in_shards) {
      part.reduce_scatter(data, ddp::comm::Cut(), ddp::comm::ReduceOp::sum, "values").wait();
      part.all_gather(data, ddp::comm::Cut(), "values").wait();
    } else {
      part.all_reduce(data, ddp::comm::ReduceOp::sum, "values").wait();
    }
    if (values.front() != expected || values.back() != expected) {
      throw std::runtime_error(fmt::format("the sum is {}", values.front()));
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    go_on = part.all_reduce_value<std::int64_t>(time.count() < seconds ? 1 : 0,
                                                ddp::comm::ReduceOp::min);
  }
}

void in_a_circle(World& world) {
  const int ranks = world.size();
  ddp::comm::Group* mine = nullptr;
  for (int edge = 0; edge < ranks; ++edge) {
    const bool is_in = world.rank() == edge || world.rank() == (edge + 1) % ranks;
    auto* const group = world.group().split(is_in ? 0 : -1, 0, fmt::format("edge {}", edge));
    if (edge == world.rank()) mine = group;
  }
  mine->barrier("with the next rank").wait();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string what = argv[1];
  const double number = std::atof(argv[2]);
  const std::string directory = argv[3];
  ddp::comm::WorldOptions options;
  options.failure_dump = directory + "/failure.json";
  if (const char* seconds = std::getenv("COMM_RANKS_TIMEOUT")) {
    options.group.limits.timeout = std::chrono::seconds(std::atoi(seconds));
  }
  return ddp::comm::run("comm_ranks", options, [&](World& world) {
    world.group().barrier("start").wait();
    std::ofstream(fmt::format("{}/pid.{}", directory, world.rank())) << getpid() << '\n';
    if (what == "all-to-all") return all_to_all(world, static_cast<std::size_t>(number));
    if (what == "throw-42" && world.rank() == 1) throw 42;
    if (what == "circle") return in_a_circle(world);
    while (what == "computes" && !std::filesystem::exists(directory + "/computed")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (what == "parts" || what == "shards") {
      in_parts(world, number, what == "shards");
    } else {
      barriers(world, what == "barriers" ? number : 60);
    }
    if (world.is_leader()) fmt::print("all is well\n");
  });
}
