// SPDX-License-Identifier: Apache-2.0
// Ranks that only communicate, with the default options of a job, to test which events stop them.
// Each rank writes its process ID to DIRECTORY/pid.R once it is running.
//
// Usage: comm_ranks barriers SECONDS DIRECTORY     consecutive barriers for this long
//        comm_ranks all-to-all BYTES DIRECTORY     every rank sends to all, then receives
//        comm_ranks throw-42 0 DIRECTORY           rank 1 throws an int
// COMM_RANKS_TIMEOUT=SECONDS: the timeout for each wait.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
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
    barriers(world, what == "barriers" ? number : 60);
    if (world.is_leader()) fmt::print("all is well\n");
  });
}
