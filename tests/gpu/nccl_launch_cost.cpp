// SPDX-License-Identifier: Apache-2.0
// The time that an all-reduce of non-blocking communicators costs the calling thread, and the time
// until the GPU has done it, as JSON on standard output. All times are microseconds of host clocks.
//
// Usage: nccl_launch_cost [RANKS [REPETITIONS [MIB]]]
//
// Default: 1 rank, 200 repetitions, from 1 KiB up to 64 MiB.
//
// Without a GPU the JSON has the reason under "skipped". Exits with 1 if a rank fails.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/gpu/gpu_ranks.h"

namespace ddp::comm::gpu {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kSmallest = std::size_t{1} << 10;

struct Settings {
  int ranks = 1;
  int repetitions = 200;
  std::size_t largest = std::size_t{64} << 20;  // bytes
};

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

Json quantiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double index = share * static_cast<double>(values.size() - 1);
    return std::round(values[static_cast<std::size_t>(index + 0.5)] * 100) / 100;
  };
  return {{"p10", at(0.1)}, {"p50", at(0.5)}, {"p90", at(0.9)}};
}

// By the group, as a trainer calls it: `call` until all_reduce() returns, `launched` until a stream
// can wait for it, `done` until the host sees its end.
Json measure_group(const Rank& r, const Buffer& data, int repetitions) {
  std::vector<double> call;
  std::vector<double> launched;
  std::vector<double> done;
  for (int i = -10; i < repetitions; ++i) {  // the first ones connect
    r.stream.finish();
    const auto begin = Clock::now();
    const Work work = r.group.all_reduce(data, ReduceOp::sum);
    const double called = microseconds_since(begin);
    work.wait();
    const double waited = microseconds_since(begin);
    work.wait_host();
    const double finished = microseconds_since(begin);
    if (i < 0) continue;
    call.push_back(called);
    launched.push_back(waited);
    done.push_back(finished);
  }
  return {{"call", quantiles(call)}, {"launched", quantiles(launched)}, {"done", quantiles(done)}};
}

// By the communicator: `call` until ncclAllReduce returns, `launched` until it is no longer in
// progress, `done` until an event behind it is reached.
Json measure_communicator(StartedNccl& nccl, const Buffer& data, int repetitions) {
  std::vector<double> call;
  std::vector<double> launched;
  std::vector<double> done;
  const DeviceStream stream = nccl.stream.get();
  for (int i = -10; i < repetitions; ++i) {
    const auto begin = Clock::now();
    nccl.communicator->all_reduce(data, ReduceOp::sum, stream);
    const double called = microseconds_since(begin);
    while (!nccl.communicator->settled()) {
    }
    const double settled = microseconds_since(begin);
    const auto end = nccl.events->record(stream);
    while (!nccl.events->reached(end)) {
    }
    const double finished = microseconds_since(begin);
    if (i < 0) continue;
    call.push_back(called);
    launched.push_back(settled);
    done.push_back(finished);
  }
  return {{"call", quantiles(call)}, {"launched", quantiles(launched)}, {"done", quantiles(done)}};
}

template <class Measure>
Json over_sizes(std::byte* memory, std::size_t largest, DeviceStream stream,
                const Measure& measure) {
  Json rows = Json::array();
  for (std::size_t bytes = kSmallest; bytes <= largest; bytes *= 4) {
    const Buffer data{memory, bytes / size_of(ElementType::f32), ElementType::f32, Memory::device,
                      stream};
    Json row = {{"bytes", bytes}};
    row.update(measure(data));
    rows.push_back(std::move(row));
  }
  return rows;
}

void measure_rank(const Rank& r, const Settings& settings, Json& result) {
  const auto memory = r.group.allocate(settings.largest);
  const auto by_group =
      over_sizes(memory.get(), settings.largest, r.stream.get(),
                 [&](const Buffer& data) { return measure_group(r, data, settings.repetitions); });
  r.group.barrier().wait();
  StartedNccl second = start_nccl(r.host, r.failures, r.options);
  const auto by_communicator = over_sizes(
      memory.get(), settings.largest, nullptr,
      [&](const Buffer& data) { return measure_communicator(second, data, settings.repetitions); });
  if (r.rank != 0) return;
  result["group_us"] = by_group;
  result["communicator_us"] = by_communicator;
}

int report(const Json& result) {
  std::printf("%s\n", result.dump(1).c_str());
  return result.contains("error") ? 1 : 0;
}

int main_of(const Settings& settings) {
  Json result = {{"program", "nccl_launch_cost"},
                 {"ranks", settings.ranks},
                 {"repetitions", settings.repetitions}};
  const Placement placement = place(settings.ranks);
  if (!placement.impossible.empty()) {
    result["skipped"] = placement.impossible;
    return report(result);
  }
  result["nccl"] = nccl::release_of(machine().libraries.nccl.version);
  result["nccl_file"] = machine().libraries.nccl.library.file_of("ncclGetVersion");
  const auto errors =
      run_ranks(placement.gpus, [&](const Rank& r) { measure_rank(r, settings, result); });
  for (const auto& error : errors) {
    if (!error.empty()) result["error"] = error;
  }
  return report(result);
}

}  // namespace
}  // namespace ddp::comm::gpu

int main(int argc, char** argv) {
  ddp::comm::gpu::Settings settings;
  if (argc > 1) settings.ranks = std::atoi(argv[1]);
  if (argc > 2) settings.repetitions = std::atoi(argv[2]);
  if (argc > 3) settings.largest = static_cast<std::size_t>(std::atoi(argv[3])) << 20;
  const bool in_range = settings.ranks >= 1 && settings.ranks <= 8 && settings.repetitions >= 1 &&
                        settings.largest >= 1 << 20 && settings.largest <= std::size_t{1} << 30;
  if (argc > 4 || !in_range) {
    std::fprintf(stderr, "usage: nccl_launch_cost [RANKS [REPETITIONS [MIB]]]\n");
    return 2;
  }
  return ddp::comm::gpu::main_of(settings);
}
