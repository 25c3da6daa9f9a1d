// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/check/node_command.h"

#include "base/host.h"
#include "ddp_runtime/check/findings/environment.h"
#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/node/run_node_checks.h"
#include "ddp_runtime/tools/check/ending.h"
#include "ddp_runtime/tools/validators.h"

namespace ddp::tools {

void add_node(CLI::App& app, NodeArguments& arguments, CheckOutputs& outputs) {
  CLI::App& node = *app.add_subcommand(
      "node",
      "Check this machine: interfaces, RDMA ports, GPUs, limits, memory, storage, name, clock");
  add_outputs(node, outputs);
  add_act(node, outputs);
  add_resume(node, outputs);
  node.add_option("--name", arguments.node, "Name of this node [its host name]");
  node.add_option("--dir", arguments.directories,
                  "Also check that this directory has space and is writable; may be repeated")
      ->type_name("PATH")
      ->take_all();
  node.add_option("--counters", arguments.counters,
                  "Compare error counters with those in this file, then store the new values there")
      ->type_name("FILE");
  node.add_option(
          "--interface", arguments.interfaces,
          "An interface that must run, and that --expect-mtu and --min-speed are about; may "
          "be repeated [those of the compute fabric's ports, or the fastest]")
      ->type_name("NAME")
      ->take_all();
  node.add_option("--expect-mtu", arguments.mtu, "Required MTU of the interfaces that carry data")
      ->check(CLI::Range(68, 65536));
  node.add_option("--min-speed", arguments.speed_gbps,
                  "Minimum speed of the interfaces that carry data in Gb/s")
      ->check(number_between(0.001, 1e5));
  node.add_flag("--gpu-copies", arguments.gpu_copies,
                "Also copy data to, from and between the GPUs, and verify it; for nodes without "
                "other jobs");
}

int run_node(const NodeArguments& arguments, const CheckOutputs& outputs) {
  require_distinct_outputs(outputs, arguments.counters);
  check::NodeOptions options;
  remove_outdated(outputs);
  options.node = arguments.node.empty() ? host_name() : arguments.node;
  options.directories = arguments.directories;
  options.counters_file = arguments.counters;
  options.gpu_copies = arguments.gpu_copies;
  options.interfaces.names = arguments.interfaces;
  if (arguments.mtu > 0) options.interfaces.mtu = arguments.mtu;
  if (arguments.speed_gbps > 0) {
    options.interfaces.speed_mbps = static_cast<int>(arguments.speed_gbps * 1000);
  }
  const auto outcome = check::run_node_checks(options, check::process_environment());
  publish(outcome.verdict, outputs);
  return end_with(exit_code_of(outcome.verdict.severity()), outcome.left_behind);
}

}  // namespace ddp::tools
