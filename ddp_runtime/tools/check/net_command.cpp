// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/check/net_command.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdio>

#include "base/errors.h"
#include "base/host.h"
#include "base/text.h"
#include "ddp_runtime/check/findings/environment.h"
#include "ddp_runtime/check/net/run_net.h"
#include "ddp_runtime/check/node/run_node_checks.h"
#include "ddp_runtime/comm/secret/step_secret.h"
#include "ddp_runtime/tools/check/ending.h"
#include "ddp_runtime/tools/check/name_list.h"
#include "ddp_runtime/tools/validators.h"

namespace ddp::tools {
namespace {

// Time limit for drivers to report their GPUs.
constexpr std::chrono::seconds kGpuTimeout{10};

void add_known_bad(CLI::App& net, NetArguments& arguments) {
  net.add_option("--known-bad", arguments.known_bad,
                 "Treat the nodes listed in these files, one per line, as bad (e.g. from "
                 "`ddp-check node --exclude-file`)")
      ->type_name("FILE")
      ->take_all();
}

void add_net_limits(CLI::App& net, NetArguments& arguments) {
  net.add_option("--deadline", arguments.deadline, "Seconds for all tasks to report")
      ->capture_default_str()
      ->check(number_between(0.1, 86400.0));
  net.add_option("--pair-limit", arguments.pair_limit, "Seconds for one exchange of a pair")
      ->capture_default_str()
      ->check(number_between(0.1, 3600.0));
  net.add_option("--join-limit", arguments.join_limit, "Seconds for MPI to start")
      ->capture_default_str()
      ->check(number_between(0.1, 3600.0));
  net.add_option("--mib", arguments.mib, "MiB per exchange, for each pair and direction")
      ->capture_default_str()
      ->check(CLI::Range(1, 4095));
  net.add_option("--port", arguments.port,
                 "Port of rank 0 [MASTER_PORT, else one reserved by SLURM, else from the job id]")
      ->check(CLI::Range(1, 65535));
}

void add_net_ways(CLI::App& net, NetArguments& arguments) {
  net.add_flag("--no-mpi", arguments.no_mpi, "Skip the MPI tests, and the collectives over TCP");
  net.add_option(
         "--rails", arguments.rails,
         "Also measure each of these interfaces separately, e.g. eth1,eth2; auto: all ports that "
         "have the same name and speed on every node")
      ->type_name("NAMES")
      ->delimiter(',')
      ->take_all();
  net.add_flag("--no-verbs", arguments.no_verbs, "Skip the RDMA tests");
  net.add_option("--hca", arguments.hca,
                 "RDMA ports to measure, one after another, e.g. mlx5_0:1,mlx5_1:1 [NCCL_IB_HCA, "
                 "else the ports of the compute fabric]")
      ->type_name("PORTS")
      ->delimiter(',')
      ->take_all();
  net.add_option("--write-bw", arguments.write_bandwidth, "perftest program that measures RDMA")
      ->type_name("PROGRAM")
      ->capture_default_str();
  net.add_flag("--no-nccl", arguments.no_nccl, "Skip the NCCL tests");
  net.add_option("--nccl", arguments.nccl_library, "NCCL library that the job will load")
      ->type_name("LIBRARY")
      ->capture_default_str();
  net.add_option("--cuda", arguments.cuda_library, "CUDA driver library, for GPUs and NCCL")
      ->type_name("LIBRARY")
      ->capture_default_str();
}

void add_missing_tool(CLI::App& net, NetArguments& arguments) {
  net.add_option("--missing-tool", arguments.missing_tool,
                 "Result if only ib_write_bw or NCCL is missing on a node: note (a line that does "
                 "not change the exit code), or unknown")
      ->type_name("LEVEL")
      ->capture_default_str()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(CLI::IsMember({"note", "unknown"}));
}

void add_net_rules(CLI::App& net, NetArguments& arguments) {
  net.add_option("--slow-warning", arguments.rules.peers.warning,
                 "Report WARNING if a node is slower than good nodes by this fraction")
      ->capture_default_str()
      ->check(number_between(0.001, 0.999));
  net.add_option("--slow-critical", arguments.rules.peers.critical,
                 "Report CRITICAL if it is slower by this fraction")
      ->capture_default_str()
      ->check(number_between(0.001, 0.999));
  net.add_option("--noise", arguments.noise,
                 "Severity if speeds vary too much to find a CRITICAL node and nothing else is "
                 "wrong: unknown, or warning for a job that should run anyway")
      ->type_name("LEVEL")
      ->capture_default_str()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(CLI::IsMember({"unknown", "warning"}));
  net.add_option("--min-busbw", arguments.min_busbw,
                 "Minimum bus bandwidth of the all-reduce in GB/s")
      ->check(number_between(1e-6, 1e6));
  net.add_option(
         "--expect-gbps", arguments.expect_gbps,
         "Link rate of every node in Gb/s, if the kernel does not report it; needed to evaluate "
         "the speed of two or three nodes")
      ->check(number_between(1e-3, 1e4));
  net.add_option(
         "--rounds", arguments.rounds,
         "Rounds of disjoint pairs [all pairs up to 8 nodes, 3 random rounds beyond, and over "
         "each of several RDMA ports]")
      ->check(CLI::Range(1, 100'000));
  net.add_option(
         "--seed", arguments.seed,
         "Seed for random pairing with more than 8 nodes [from job and step, so that each job "
         "measures different pairs]")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 62));
}

check::NetOptions net_options(const NetArguments& arguments, int wanted) {
  check::StepOptions step;
  if (arguments.port > 0) step.port = static_cast<std::uint16_t>(arguments.port);
  step.pretend_nodes = arguments.pretend_nodes;
  check::NetOptions options;
  options.host = host_name();
  options.step = check::step_from(check::process_environment(), options.host, step);
  options.program = program_name();
  options.secret = comm::find_secret({arguments.key, options.step.identity, options.step.rank == 0},
                                     check::process_environment());
  options.injections = check::parse_injections(arguments.inject);
  options.deadline = milliseconds(arguments.deadline);
  options.pair_limit = milliseconds(arguments.pair_limit);
  options.join_limit = milliseconds(arguments.join_limit);
  options.bytes = static_cast<std::size_t>(arguments.mib) << 20U;
  options.mpi = !arguments.no_mpi;
  options.verbs = !arguments.no_verbs;
  if (options.verbs) {
    options.rdma = check::find_own_rdma(check::process_environment(),
                                        {arguments.write_bandwidth, arguments.hca});
  }
  options.nccl = !arguments.no_nccl;
  if (options.nccl) {
    options.nccl_tool.nccl_library = arguments.nccl_library;
    options.nccl_tool.cuda_library = arguments.cuda_library;
    options.nccl_tool = check::find_nccl(options.nccl_tool, kGpuTimeout);
  }
  if (arguments.missing_tool == "unknown") options.missing_tool = check::Severity::unknown;
  options.rails = arguments.rails;
  if (options.step.rank == 0) options.known_bad = read_names(arguments.known_bad);
  options.seed = arguments.seed;
  options.rules = arguments.rules;
  options.wanted = wanted;
  if (arguments.noise == "warning") options.rules.noise = check::Severity::warning;
  options.rounds = arguments.rounds;
  if (arguments.expect_gbps > 0) {
    options.link_bytes_per_second = arguments.expect_gbps * 1e9 / 8;
  }
  if (arguments.min_busbw > 0) options.fewest_bus_bytes_per_second = arguments.min_busbw * 1e9;
  return options;
}

// Without a key, any process that reaches the port could make ddp-check drain nodes.
void require_key_to_act(const check::NetOptions& options, const CheckOutputs& outputs) {
  if (options.secret || options.step.size == 1) return;
  if (outputs.act) {
    throw UsageError(
        "without a key the tasks of this step cannot be authenticated, so any process that reaches "
        "rank 0's port could cause --act to drain nodes: start with srun --ddp, or provide a key "
        "with --key");
  }
  if (options.step.rank == 0) {
    fmt::print(
        stderr,
        "ddp-check: no key for this step: any process that reaches port {} is trusted; srun --ddp, "
        "MUNGE or --key file:PATH provide one\n",
        options.step.leader_port);
  }
}

}  // namespace

void add_net(CLI::App& app, NetArguments& arguments, CheckOutputs& outputs) {
  CLI::App& net = *app.add_subcommand(
      "net", "Check the network between the tasks of a job step; start it with srun or mpirun");
  add_outputs(net, outputs);
  add_outputs_of_nodes(net, outputs);
  add_act(net, outputs);
  add_net_limits(net, arguments);
  add_net_ways(net, arguments);
  add_missing_tool(net, arguments);
  add_known_bad(net, arguments);
  add_net_rules(net, arguments);
  net.add_option(
         "--inject", arguments.inject,
         "Inject a fault to test its detection: slow:NODE:FACTOR, hang:NODE, hang:NODE:mpi, "
         "corrupt:NODE, missing:NODE, drop:NODE:PART, mtu:NODE:BYTES, skew:NODE:SECONDS, "
         "jump:NODE:SECONDS; slow, corrupt and drop also between two nodes, e.g. "
         "slow:NODE+NODE:FACTOR; separate several with commas")
      ->type_name("FAULT")
      ->take_all();
  net.add_option(
         "--key", arguments.key,
         "Source of the key that proves a task belongs to the step: auto, plugin, launcher, "
         "munge, file:PATH (readable by you only, the same for all tasks) or none")
      ->type_name("SOURCE")
      ->envname("SLURM_DDP_KEY")
      ->capture_default_str();
  net.add_option("--pretend-nodes", arguments.pretend_nodes,
                 "Let the tasks pretend to run on these nodes, for trials on one machine")
      ->type_name("LIST");
}

int run_net(const NetArguments& arguments, const CheckOutputs& outputs) {
  require_distinct_outputs(outputs);
  check::NetOptions options = net_options(arguments, outputs.wanted);
  require_key_to_act(options, outputs);
  if (options.step.rank == 0) remove_outdated(outputs);
  options.progress = [](const std::string& line) {
    fmt::print(stderr, "ddp-check: {}\n", sanitize(line));
  };
  options.publish = [&outputs](const check::Verdict& verdict) { publish(verdict, outputs); };
  options.keep = [&outputs](const check::Verdict& verdict) { keep(verdict, outputs); };
  const check::NetOutcome outcome = check::run_net(options);
  if (!outcome.complaint.empty()) {
    fmt::print(stderr, "ddp-check: {}\n",
               sanitize_lines(outcome.complaint, outcome.complaint.size()));
  }
  return end_with(outcome.exit_code, outcome.left_behind);
}

}  // namespace ddp::tools
