// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce_bench.h"

#include <mpi.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "bench/gloo_peer.h"
#include "bench/statistics.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp::bench {
namespace {

using profile::Clock;

struct AllReduceContender {
  std::string name;
  std::function<void()> prepare;  // not timed
  std::function<void()> run;
  std::vector<double> seconds;
};

double timed(const std::function<void()>& run) {
  const auto begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// algbw is bytes per second as the caller sees it; busbw is the rate that a ring would need on each
// link, which is comparable between numbers of ranks.
nlohmann::json rates(const std::vector<double>& seconds, double bytes, int ranks) {
  const double p50 = median(seconds);
  const double factor = 2.0 * (ranks - 1) / ranks;
  return {{"seconds", percentiles(seconds)},
          {"algbw_GBps", bytes / p50 / 1e9},
          {"busbw_GBps", bytes * factor / p50 / 1e9},
          {"factor", factor}};
}

}  // namespace

nlohmann::json run_allreduce_bench(comm::World& world, const AllreduceBenchOptions& options) {
  if (world.size() < 2)
    throw UsageError("an all-reduce needs at least two ranks; use srun or mpirun");
  comm::Group& group = world.group();
  const auto count = static_cast<std::size_t>(options.mib * 1048576 / sizeof(float));
  const double bytes = static_cast<double>(count * sizeof(float));
  const auto memory = group.allocate(count * sizeof(float));
  const std::span<float> shared(reinterpret_cast<float*>(memory.get()), count);
  std::vector<float> own(count, 1);
  std::vector<float> source(count, 1);

  std::vector<AllReduceContender> contenders;
  const auto add = [&](std::string name, std::function<void()> prepare, std::function<void()> run) {
    contenders.push_back({std::move(name), std::move(prepare), std::move(run), {}});
  };
  const auto reduce = [&](std::span<float> data) {
    return [&group, data] { group.all_reduce(comm::buffer_of(data), comm::ReduceOp::sum).wait(); };
  };
  const auto fill = [](std::span<float> data) {
    return [data] { std::fill(data.begin(), data.end(), 1.0F); };
  };
  add("ours", fill(shared), reduce(shared));
  add("ours_private_memory", fill(own), reduce(own));
  // Half of an all-reduce each.
  add("reduce_scatter", fill(shared), [&group, shared] {
    group.reduce_scatter(comm::buffer_of(shared), comm::Cut(), comm::ReduceOp::sum).wait();
  });
  add("all_gather", fill(shared),
      [&group, shared] { group.all_gather(comm::buffer_of(shared), comm::Cut()).wait(); });
  if (group.backend() == "mpi") {
    add("mpi_allreduce", fill(own), [&] {
      MPI_Allreduce(MPI_IN_PLACE, own.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    });
  }
  const auto gloo = make_gloo_peer(group);
  if (gloo) add("gloo", fill(own), [&] { gloo->all_reduce(own); });
  add("memcpy", fill(own), [&] { std::memcpy(own.data(), source.data(), own.size() * 4); });

  constexpr int kWarmUp = 2;
  for (int round = -kWarmUp; round < options.rounds; ++round) {
    for (auto& contender : contenders) {
      contender.prepare();
      group.barrier("bench").wait();
      const double seconds = timed(contender.run);
      if (round >= 0) contender.seconds.push_back(seconds);
    }
  }

  nlohmann::json result = {{"benchmark", "allreduce"},
                           {"world_size", world.size()},
                           {"mib", options.mib},
                           {"rounds", options.rounds}};
  for (auto& contender : contenders) {
    const auto seconds = slowest(group, contender.seconds);
    if (contender.name == "ours") {
      result.update(rates(seconds, bytes, world.size()));
    } else {
      result["compared"][contender.name] = rates(seconds, bytes, world.size());
    }
  }
  return result;
}

}  // namespace ddp::bench
