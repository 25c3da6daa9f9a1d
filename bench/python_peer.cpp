// SPDX-License-Identifier: Apache-2.0
#include "bench/python_peer.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/errors.h"
#include "base/host.h"

namespace ddp::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kScript = "python_ddp_peer.py";

// The script next to the installed program or in the source tree.
std::string script_path() {
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const auto installed =
        program.parent_path().parent_path() / SLURM_DDP_BENCH_INSTALLED / kScript;
    if (fs::exists(installed, error)) return installed;
  }
  return fs::path(SLURM_DDP_BENCH_SOURCE) / kScript;
}

json parse_ddp_arguments(const std::string& text) {
  auto arguments = json::parse(text, nullptr, false);
  if (!arguments.is_object()) {
    throw UsageError(fmt::format(
        "'{}' is not a JSON object of keyword arguments, such as {{\"static_graph\": true}}",
        text));
  }
  return arguments;
}

json pipeline_of(const PythonPeerOptions::Pipeline& pipeline) {
  if (pipeline.schedule.empty()) return nullptr;
  return {{"schedule", pipeline.schedule},
          {"micro_batches", pipeline.micro_batches},
          {"stages_per_rank", pipeline.stages_per_rank}};
}

json ask(ChildProcess& child, const json& question) {
  child.write_line(question.dump());
  return json::parse(child.read_line());
}

json ask_or_throw(ChildProcess& child, const json& question) {
  json answer = ask(child, question);
  if (answer.contains("error")) {
    throw RuntimeError("the Python peer failed: " + answer["error"].get<std::string>());
  }
  return answer;
}

// The address at which the peers of all ranks reach rank 0's peer: the launcher's MASTER_ADDR, or
// the host name.
std::string leader_address(comm::Group& group) {
  const std::string host = host_name();
  const char* const told = std::getenv("MASTER_ADDR");
  return group.broadcast_text(told != nullptr ? told : host, 0);
}

struct Prepared {
  std::unique_ptr<ChildProcess> child;
  json answer;  // "version" and "port" (of rank 0), or "error"
};

// A rank without the interpreter or without PyTorch reports the error instead of failing.
Prepared prepare(const json& configuration, const std::string& interpreter) {
  Prepared prepared;
  try {
    // -B: leaves no compiled modules beside the script, where a package is installed.
    prepared.child =
        std::make_unique<ChildProcess>(std::vector<std::string>{interpreter, "-B", script_path()});
    prepared.answer = ask(*prepared.child, configuration);
  } catch (const RuntimeError& error) {
    prepared.answer = {{"error", error.what()}};
  }
  return prepared;
}

}  // namespace

std::string python_peer_name(const std::string& shard, const torch::Device& device) {
  const char* const what = shard == "optimizer"    ? "zero1"
                           : shard == "gradients"  ? "fsdp2_keep"
                           : shard == "parameters" ? "fsdp2"
                                                   : "ddp";
  return fmt::format("python_{}_{}", what, device.is_cpu() ? "gloo" : "nccl");
}

std::vector<double> PythonPeer::run(std::int64_t steps) {
  return ask_or_throw(*child_, {{"run", steps}}).at("seconds").get<std::vector<double>>();
}

StartedPythonPeer start_python_peer(comm::Group& group, const models::ModelOptions& model,
                                    std::int64_t batch, const PythonPeerOptions& options,
                                    const Computation& how) {
  const json configuration = {{"rank", group.rank()},
                              {"world_size", group.size()},
                              {"threads", torch::get_num_threads()},
                              {"model", model.name},
                              {"input", model.input},
                              {"width", model.width},
                              {"layers", model.layers},
                              {"heads", model.heads},
                              {"tokens", model.tokens},
                              {"classes", model.classes},
                              {"batch", batch},
                              {"optimizer", options.optimizer},
                              {"step", options.step},
                              {"shard", options.shard},
                              {"pipeline", pipeline_of(options.pipeline)},
                              {"device", how.device.str()},
                              {"precision", precision_of(how)},
                              {"channels_last", how.channels_last},
                              {"ddp_arguments", parse_ddp_arguments(options.ddp_arguments)}};
  const std::string leader = leader_address(group);
  auto [child, answer] = prepare(configuration, options.interpreter);
  for (const auto& text : group.all_gather_text(answer.dump())) {
    const auto of_rank = json::parse(text);
    if (of_rank.contains("error")) return {nullptr, of_rank["error"], {}};
  }
  const int port = group.all_reduce_value<std::int32_t>(answer.at("port"), comm::ReduceOp::max);
  ask_or_throw(*child, {{"leader", leader}, {"port", port}});
  return {std::make_unique<PythonPeer>(std::move(child)),
          {},
          answer.at("version"),
          answer.at("parameters")};
}

}  // namespace ddp::bench
