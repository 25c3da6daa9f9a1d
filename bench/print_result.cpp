// SPDX-License-Identifier: Apache-2.0
#include "bench/print_result.h"

#include <fmt/format.h>

#include <string>

namespace ddp::bench {
namespace {

using nlohmann::json;

std::string milliseconds(const json& seconds) {
  return fmt::format("p10 {:8.3f}   p50 {:8.3f}   p90 {:8.3f} ms",
                     1e3 * seconds.at("p10").get<double>(), 1e3 * seconds.at("p50").get<double>(),
                     1e3 * seconds.at("p90").get<double>());
}

void print_ratio(const std::string& what, const json& ratios) {
  const auto& rounds = ratios.at("ratio_per_round");
  fmt::print("{:<41} {:6.3f} of medians; per round p10 {:.3f}, p50 {:.3f}, p90 {:.3f}\n", what,
             ratios.at("our_p50_over_its_p50").get<double>(), rounds.at("p10").get<double>(),
             rounds.at("p50").get<double>(), rounds.at("p90").get<double>());
}

void print_ratios(const std::string& name, const json& peer) {
  print_ratio("ours / " + name, peer);
  const std::string with_shards = "ours_with_shards";
  if (peer.contains(with_shards)) print_ratio(with_shards + " / " + name, peer.at(with_shards));
}

void print_limit(const json& limit) {
  fmt::print(
      "limit {:.3f} ms: the larger of {:.3f} ms of computation and {:.3f} ms for {:.1f} MB on a "
      "link of {} Gbit/s; ours takes {:.3f} times that\n",
      1e3 * limit.at("seconds").get<double>(), 1e3 * limit.at("compute_seconds").get<double>(),
      1e3 * limit.at("wire_seconds").get<double>(),
      limit.at("bytes_sent_per_rank").get<double>() / 1e6, limit.at("link_gbit").get<double>(),
      limit.at("our_p50_over_it").get<double>());
}

std::string mebibytes(const json& bytes) {
  constexpr double kMiB = 1048576;
  return fmt::format("after step 3 {:8.1f}   peak of a step {:8.1f}   peak {:8.1f} MiB",
                     bytes.at("after_step_3").get<double>() / kMiB,
                     bytes.at("peak_of_a_step").get<double>() / kMiB,
                     bytes.at("peak").get<double>() / kMiB);
}

std::string per_round(const json& ratios) {
  return fmt::format(" (per round {:.2f} to {:.2f})", ratios.at("p10").get<double>(),
                     ratios.at("p90").get<double>());
}

void print_rates(const std::string& name, const json& r) {
  fmt::print("{:<22} {}   algbw {:7.2f}   busbw {:7.2f} GB/s\n", name,
             milliseconds(r.at("seconds")), r.at("algbw_GBps").get<double>(),
             r.at("busbw_GBps").get<double>());
}

void print_schedule(const std::string& name, const json& entry) {
  const auto percent = [](const json& part) { return 100 * part.get<double>(); };
  fmt::print("{:<12} {}\n", name, milliseconds(entry.at("step_seconds")));
  fmt::print("  bubble {:.1f} %, predicted {:.1f} % (equal stages, free messages: {:.1f} %)\n",
             percent(entry.at("bubble").at("p50")), percent(entry.at("predicted_bubble").at("p50")),
             percent(entry.at("bubble_of_equal_stages")));
  for (const auto* const key :
       {"bubble_over_predicted", "bubble_over_replayed", "pass_over_predicted",
        "pass_over_replayed", "pass_over_predicted_from_stages_alone"}) {
    const auto& rounds = entry.at(key);
    fmt::print("  {:<39} per round p10 {:.3f}, p50 {:.3f}, p90 {:.3f}\n", key,
               rounds.at("p10").get<double>(), rounds.at("p50").get<double>(),
               rounds.at("p90").get<double>());
  }
  for (const auto* const key : {"stages", "stages_alone"}) {
    fmt::print("  {:<13}", key);
    for (const auto& stage : entry.at(key)) {
      fmt::print(" {:.3f} + {:.3f}", 1e3 * stage.at("forward_seconds").get<double>(),
                 1e3 * stage.at("backward_seconds").get<double>());
    }
    fmt::print(" ms\n");
  }
  print_ratio("  ours / data_parallel", entry.at("over_data_parallel"));
  if (!entry.contains("python")) return;
  fmt::print("  python       {}\n", milliseconds(entry.at("python").at("step_seconds")));
  print_ratio("  ours / python", entry.at("python"));
}

}  // namespace

void print_ckpt(const json& result) {
  const auto number = [&](const char* key) { return result.at(key).get<double>(); };
  fmt::print("{:.0f} MiB in {} arrays, {} rounds; times until durable\n", number("bytes") / 1048576,
             result.at("arrays").get<int>(), result.at("rounds").get<int>());
  for (const auto& [name, peer] : result.at("compared").items()) {
    fmt::print("{:<24} {:6.3f} s   {:5.2f} GB/s   {:.2f} of raw{}\n", name,
               peer.at("seconds").at("p50").get<double>(), peer.at("GBps").get<double>(),
               peer.at("of_raw").get<double>(), per_round(peer.at("of_raw_per_round")));
  }
  if (result.contains("missing"))
    fmt::print("without Python: {}\n", result.at("missing").get<std::string>());
  if (result.contains("speedup_over_torch_save")) {
    fmt::print("{:.2f} times as fast as torch.save\n", number("speedup_over_torch_save"));
  }
  fmt::print("asynchronous: training stalls for {:.4f} s, {:.2f} times the bare copy{}\n",
             result.at("stall_seconds").at("p50").get<double>(), number("stall_over_copy"),
             per_round(result.at("stall_over_copy_per_round")));
  fmt::print("extra memory: {:.3f} times the state\n", number("extra_memory_over_state"));
  fmt::print("load with verification: {:.3f} s, {:.2f} of a raw read{}\n",
             result.at("load_seconds").at("p50").get<double>(), number("load_of_raw_read"),
             per_round(result.at("load_of_raw_read_per_round")));
  fmt::print("{} arrays of 64 bytes: {:.3f} s\n", result.at("tiny_arrays").get<int>(),
             result.at("tiny_seconds").at("p50").get<double>());
}

void print_step(const json& result) {
  fmt::print("{} parameters, {} ranks, batch {} each, {} steps in blocks of {}, {} buckets\n",
             result.at("parameters").get<std::int64_t>(), result.at("world_size").get<int>(),
             result.at("batch").get<std::int64_t>(), result.at("steps").get<std::int64_t>(),
             result.at("block").get<std::int64_t>(), result.at("buckets").get<std::int64_t>());
  fmt::print("{:<41} {}\n", "ours", milliseconds(result.at("step_seconds")));
  const auto& compared = result.at("compared");
  for (const auto& [name, peer] : compared.items()) {
    fmt::print("{:<41} {}\n", name, milliseconds(peer.at("step_seconds")));
  }
  for (const auto& [name, peer] : compared.items()) print_ratios(name, peer);
  if (result.contains("limit")) print_limit(result["limit"]);
  if (!result.contains("not_compared")) return;
  for (const auto& [name, reason] : result["not_compared"].items()) {
    fmt::print("{} not compared: {}\n", name, reason.get<std::string>());
  }
}

void print_pipeline(const json& result) {
  fmt::print("{} parameters, {} ranks, batch {} each, {} micro-batches, {} steps in blocks of {}\n",
             result.at("parameters").get<std::int64_t>(), result.at("world_size").get<int>(),
             result.at("batch").get<std::int64_t>(), result.at("micro_batches").get<int>(),
             result.at("steps").get<std::int64_t>(), result.at("block").get<std::int64_t>());
  fmt::print("{:<12} {}\n", "data_parallel",
             milliseconds(result.at("data_parallel").at("step_seconds")));
  fmt::print("{:<12} {}\n", "message", milliseconds(result.at("message_seconds")));
  for (const auto& [name, entry] : result.at("schedules").items()) print_schedule(name, entry);
  if (!result.contains("not_compared")) return;
  for (const auto& [name, reason] : result["not_compared"].items()) {
    fmt::print("{} not compared: {}\n", name, reason.get<std::string>());
  }
}

// Beside each other, so memory that ranks of one machine share is divided among them.
void print_shards(const json& result) {
  constexpr double kMiB = 1048576;
  const auto mib = [](const json& bytes) { return bytes.get<double>() / kMiB; };
  const auto& measured = result.at("bytes");
  const auto& sharding = result.at("sharding");
  const double of_others = mib(measured.at("of_others"));
  const double between = mib(sharding.at("predicted_bytes_between_steps"));
  fmt::print("--shard {}: memory of a rank, without the other ranks' shares of shared memory\n",
             sharding.at("strategy").get<std::string>());
  fmt::print("measured    after step 3 {:8.1f}   peak of a step {:8.1f} MiB\n",
             mib(measured.at("after_step_3")) - of_others,
             mib(measured.at("peak_of_a_step")) - of_others);
  fmt::print("predicted   between steps {:7.1f}   in a step {:13.1f} MiB, without activations\n",
             between, between + mib(sharding.at("predicted_bytes_in_step")));
}

void print_memory(const json& result) {
  const auto& plain = result.at("compared").at("plain_loop").at("bytes");
  constexpr double kMiB = 1048576;
  fmt::print("{} parameters, {} ranks; growth of a process by training\n",
             result.at("parameters").get<std::int64_t>(), result.at("world_size").get<int>());
  fmt::print("ours        {}\n", mebibytes(result.at("bytes")));
  fmt::print("plain loop  {}\n", mebibytes(plain));
  fmt::print(
      "parameters, gradients and momentum are {:.1f} MiB, the largest bucket is {:.1f} MiB\n",
      result.at("parameters_gradients_optimizer_bytes").get<double>() / kMiB,
      result.at("largest_bucket_bytes").get<double>() / kMiB);
  print_shards(result);
}

void print_allreduce(const json& result) {
  fmt::print(
      "{} MiB of float32 over {} ranks, {} alternating rounds, slowest rank; GB = 1e9 bytes\n",
      result.at("mib").get<double>(), result.at("world_size").get<int>(),
      result.at("rounds").get<int>());
  print_rates("ours", result);
  for (const auto& [name, rates] : result.at("compared").items()) print_rates(name, rates);
}

void print_timeline(const json& result) {
  fmt::print("{:>12} {:>12}  {:>9}  {}\n", "posted us", "arrived us", "bytes", "from -> to");
  for (const auto& m : result.at("messages")) {
    fmt::print("{:12.1f} {:12.1f}  {:9}  {} -> {}\n", 1e6 * m.at("posted").get<double>(),
               1e6 * m.at("arrived").get<double>(), m.at("bytes").get<std::size_t>(),
               m.at("from").get<int>(), m.at("to").get<int>());
  }
}

void print_async(const json& result) {
  fmt::print("training on {} ranks, each delayed by {} ms in one step of {}\n",
             result["world_size"].get<int>(), result["sleep_ms"].get<double>(),
             result["sleep_every"].get<int>());
  const double synchronous = result["runs"][0]["seconds"].back().get<double>();
  for (const auto& run : result["runs"]) {
    const double seconds = run["seconds"].back().get<double>();
    const std::string name = run["staleness"].is_null()
                                 ? "synchronous"
                                 : fmt::format("staleness {}", run["staleness"].get<int>());
    fmt::print("  {:<14} {} steps in {:.2f} s, {:.2f} of synchronous; eval loss {:.4f}", name,
               run["losses"].size(), seconds, seconds / synchronous,
               run["eval_loss"].get<double>());
    if (run.contains("largest_lead")) {
      fmt::print(", at most {} steps ahead", run["largest_lead"].get<int>());
    }
    fmt::print("\n");
  }
}

}  // namespace ddp::bench
