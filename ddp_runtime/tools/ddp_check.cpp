// ddp-check: names the bad node before the job starts. `node` looks at this machine only, `net` at
// the network between the tasks of a job step.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/judge/simulate.h"
#include "ddp_runtime/check/net/measure/nccl_end.h"
#include "ddp_runtime/check/net/run_net.h"
#include "ddp_runtime/check/node/run_node_checks.h"
#include "ddp_runtime/check/operations.h"
#include "ddp_runtime/check/verdict.h"
#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/report/check_page.h"
#include "ddp_runtime/tools/drain_nodes.h"
#include "ddp_runtime/tools/name_list.h"
#include "ddp_runtime/tools/output_file.h"
#include "ddp_runtime/tools/validators.h"
#include "slurm_ddp/version.h"

namespace {

using namespace ddp;

// For drivers to tell of their GPUs.
constexpr std::chrono::seconds kGpuPatience{10};
constexpr int kUsage = 3;  // what monitoring systems expect of a check that could not run

std::string program_name() {
  return fmt::format("ddp-check {}", kVersion);
}

struct Outputs {
  std::string json;
  std::string exclude;
  std::string directory;
  int wanted = 0;
  bool act = false;
};

struct NodeArguments {
  std::string node;
  std::vector<std::string> directories;
  std::string counters;
  int mtu = 0;
  double speed_gbps = 0;
};

struct NetArguments {
  double deadline = 30;
  double pair_limit = 10;
  double join_limit = 60;
  int mib = 32;
  bool no_mpi = false;
  bool no_verbs = false;
  std::string write_bandwidth = "ib_write_bw";
  std::string hca;
  bool no_nccl = false;
  std::string nccl_library = check::kNcclLibrary;
  std::string cuda_library = check::kCudaLibrary;
  std::vector<std::string> rails;
  std::vector<std::string> known_bad;
  int port = 0;
  std::uint64_t seed = 1;
  check::PairRules rules;
  double min_busbw = 0;
  double expect_gbps = 0;
  int rounds = 0;
  std::vector<std::string> inject;
  std::string pretend_nodes;
};

void add_outputs(CLI::App& command, Outputs& outputs) {
  command.add_option("--json", outputs.json, "Write all findings and measurements to this file")
      ->type_name("FILE");
  command
      .add_option("--exclude-file", outputs.exclude,
                  "Write the names of the nodes not to use to this file, one a line; empty when "
                  "there are none")
      ->type_name("FILE");
}

void add_net_outputs(CLI::App& net, Outputs& outputs) {
  net.add_option("--out", outputs.directory,
                 "Write verdict.json, events.jsonl, report.md, report.html, exclude.txt and "
                 "good_hostlist.txt to this directory")
      ->type_name("DIR");
  net.add_option(
         "--want", outputs.wanted,
         "Nodes the job needs: of more good ones the rest are spares, fewer are CRITICAL for "
         "whoever reads good_hostlist.txt, which then stays empty")
      ->check(CLI::Range(1, 100'000));
}

void add_known_bad(CLI::App& net, NetArguments& arguments) {
  net.add_option("--known-bad", arguments.known_bad,
                 "Nodes named in these files, one a line, are bad whatever is measured here; for "
                 "what `ddp-check node --exclude-file` wrote")
      ->type_name("FILE")
      ->take_all();
}

void add_act(CLI::App& command, Outputs& outputs) {
  command.add_flag("--act", outputs.act,
                   "Drain the bad nodes with scontrol, instead of only saying how; nodes that "
                   "somebody else gave a reason are left alone");
}

void add_node(CLI::App& app, NodeArguments& arguments, Outputs& outputs) {
  CLI::App& node = *app.add_subcommand(
      "node",
      "Check this machine: interfaces, RDMA ports, GPUs, limits, memory, storage, name, clock");
  add_outputs(node, outputs);
  add_act(node, outputs);
  node.add_option("--name", arguments.node, "What to call this node [its host name]");
  node.add_option("--dir", arguments.directories,
                  "Also check that this directory has room and can be written to; may be repeated")
      ->type_name("PATH")
      ->take_all();
  node.add_option(
          "--counters", arguments.counters,
          "Compare error counters with those kept in this file, and keep the new ones there")
      ->type_name("FILE");
  node.add_option("--expect-mtu", arguments.mtu, "MTU that every wired interface must have")
      ->check(CLI::Range(68, 65536));
  node.add_option("--min-speed", arguments.speed_gbps,
                  "Gb/s that every wired interface must run at, at least")
      ->check(CLI::Range(0.001, 1e5));
}

void add_net_limits(CLI::App& net, NetArguments& arguments) {
  net.add_option("--deadline", arguments.deadline, "Seconds for all tasks to report")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 86400.0));
  net.add_option("--pair-limit", arguments.pair_limit, "Seconds for one exchange of a pair")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  net.add_option("--join-limit", arguments.join_limit, "Seconds for MPI to start")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  net.add_option("--mib", arguments.mib, "MiB that a pair exchanges in each direction")
      ->capture_default_str()
      ->check(CLI::Range(1, 4095));
  net.add_option("--port", arguments.port,
                 "Port of rank 0 [MASTER_PORT, else one reserved by SLURM, else from the job id]")
      ->check(CLI::Range(1, 65535));
}

void add_net_ways(CLI::App& net, NetArguments& arguments) {
  net.add_flag("--no-mpi", arguments.no_mpi, "Leave MPI out");
  net.add_option(
         "--rails", arguments.rails,
         "Also measure each of these interfaces by itself, as in eth1,eth2; auto: all ports "
         "that the nodes have by the same name and speed")
      ->type_name("NAMES")
      ->delimiter(',')
      ->take_all();
  net.add_flag("--no-verbs", arguments.no_verbs, "Leave RDMA out, where the nodes have it");
  net.add_option("--hca", arguments.hca, "RDMA port to measure, as mlx5_0:1 [the first active one]")
      ->type_name("PORT");
  net.add_option("--write-bw", arguments.write_bandwidth, "perftest's program that measures RDMA")
      ->type_name("PROGRAM")
      ->capture_default_str();
  net.add_flag("--no-nccl", arguments.no_nccl, "Leave NCCL out, where the nodes have GPUs");
  net.add_option("--nccl", arguments.nccl_library, "NCCL, as the job will load it")
      ->type_name("LIBRARY")
      ->capture_default_str();
  net.add_option("--cuda", arguments.cuda_library, "The driver's library, for GPUs and NCCL")
      ->type_name("LIBRARY")
      ->capture_default_str();
}

void add_net_rules(CLI::App& net, NetArguments& arguments) {
  net.add_option("--slow-warning", arguments.rules.peers.warning,
                 "Part of the nodes' median speed that a node must lose to be WARNING")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 0.999));
  net.add_option("--slow-critical", arguments.rules.peers.critical, "Likewise for CRITICAL")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 0.999));
  net.add_option("--min-busbw", arguments.min_busbw,
                 "GB/s of bus bandwidth that the all-reduce must reach")
      ->check(CLI::Range(1e-6, 1e6));
  net.add_option(
         "--expect-gbps", arguments.expect_gbps,
         "Gb/s that the link of every node carries, where the kernel does not say; lets two "
         "and three nodes be judged")
      ->check(CLI::Range(1e-3, 1e4));
  net.add_option("--rounds", arguments.rounds,
                 "Rounds of disjoint pairs [all pairs up to 8 nodes, 3 random rounds beyond]")
      ->check(CLI::Range(1, 100'000));
  net.add_option("--seed", arguments.seed, "Of the random rounds among more than 8 nodes")
      ->capture_default_str();
}

void add_net(CLI::App& app, NetArguments& arguments, Outputs& outputs) {
  CLI::App& net = *app.add_subcommand(
      "net", "Check the network between the tasks of a job step; start it with srun or mpirun");
  add_outputs(net, outputs);
  add_net_outputs(net, outputs);
  add_act(net, outputs);
  add_net_limits(net, arguments);
  add_net_ways(net, arguments);
  add_known_bad(net, arguments);
  add_net_rules(net, arguments);
  net.add_option(
         "--inject", arguments.inject,
         "Put in a fault to see it found: slow:NODE:FACTOR, hang:NODE, hang:NODE:mpi, "
         "corrupt:NODE, missing:NODE, drop:NODE:PART, mtu:NODE:BYTES, skew:NODE:SECONDS, "
         "jump:NODE:SECONDS; slow, corrupt and drop also for what two nodes exchange, as in "
         "slow:NODE+NODE:FACTOR; several with commas")
      ->type_name("FAULT")
      ->take_all();
  net.add_option("--pretend-nodes", arguments.pretend_nodes,
                 "For trying it out on one machine: the tasks count as these nodes")
      ->type_name("LIST");
}

struct NcclEndArguments {
  check::NcclEnd end;
  std::int64_t limit_ms = 10'000;
  bool survey = false;
};

// One end of a measurement, as `net` starts it on both nodes; not in the help for people.
void add_nccl_end(CLI::App& app, NcclEndArguments& arguments) {
  CLI::App& command = *app.add_subcommand("nccl-end", "One end of a pair of GPUs");
  command.group("");
  check::NcclEnd& end = arguments.end;
  command.add_option("--nccl", end.nccl_library);
  command.add_option("--cuda", end.cuda_library);
  command.add_option("--host", end.host, "The other end; without, wait for its call");
  command.add_option("--port", end.port);
  command.add_option("--exchange", end.exchange, "A number that both ends know");
  command.add_option("--bytes", end.bytes)->check(CLI::Range(std::size_t{1}, std::size_t{1} << 32));
  command.add_option("--limit-ms", arguments.limit_ms)->check(CLI::Range(1, 86'400'000));
  command.add_option("--slow", end.faults.speed)->check(CLI::Range(0.0, 1.0));
  command.add_flag("--corrupt", end.faults.corrupt);
  command.add_flag("--survey", arguments.survey, "Only tell which GPUs and which NCCL there are");
}

// What it prints is read by the check; NCCL's log tells which network it took.
int run_nccl_end(const NcclEndArguments& arguments) {
  setenv("NCCL_DEBUG", "INFO", 1);
  for (const char* elsewhere : {"NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"}) unsetenv(elsewhere);
  const check::NcclEnd& end = arguments.end;
  try {
    const auto result =
        arguments.survey
            ? check::survey_nccl(end.nccl_library, end.cuda_library)
            : check::to_message(check::measure_by_nccl(
                  end, check::Clock::now() + std::chrono::milliseconds(arguments.limit_ms)));
    fmt::print("{}", check::nccl_result_line(result));
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return kUsage;
  }
  return 0;
}

struct SimulateArguments {
  check::Simulation simulation;
  check::PairRules rules;
};

void add_simulate(CLI::App& app, SimulateArguments& arguments) {
  CLI::App& command = *app.add_subcommand(
      "simulate", "How often the locator of `net` names exactly the bad nodes of simulated fleets");
  auto& simulation = arguments.simulation;
  const auto option = [&command](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->capture_default_str();
  };
  option("--nodes", simulation.nodes, "Nodes of a fleet")->check(CLI::Range(4, 100'000));
  option("--bad", simulation.bad, "Bad nodes among them")->check(CLI::Range(0, 50'000));
  option("--bad-speed", simulation.bad_speed, "Their speed, as a part of a good node's")
      ->check(CLI::Range(0.001, 0.999));
  option("--rounds", simulation.rounds, "Random rounds of disjoint pairs")
      ->check(CLI::Range(1, 1000));
  option("--noise", simulation.noise, "Standard deviation of a measurement")
      ->check(CLI::Range(0.0, 0.5));
  option("--congested", simulation.congested, "Part of the exchanges slowed by other traffic")
      ->check(CLI::Range(0.0, 0.9));
  option("--trials", simulation.trials, "Fleets")->check(CLI::Range(1, 1'000'000));
  option("--seed", simulation.seed, "Of the random numbers");
  command.add_flag("!--no-retrials", simulation.retrials, "Judge by the rounds alone");
}

int run_simulate(const SimulateArguments& arguments) {
  if (2 * arguments.simulation.bad >= arguments.simulation.nodes) {
    throw UsageError("--bad must be less than half of --nodes: a majority has to be good");
  }
  const auto result = check::simulate(arguments.simulation, arguments.rules);
  const auto percent = [&result](int count) { return 100.0 * count / result.trials; };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{} fleets of {} nodes with {} bad: exact {:.1f} %, false alarms {:.1f} %, missed {:.1f} %; "
      "locator at most {:.3f} s, {} MB in all\n",
      result.trials, arguments.simulation.nodes, arguments.simulation.bad, percent(result.exact),
      percent(result.false_alarms), percent(result.missed), result.slowest_seconds,
      usage.ru_maxrss / 1000);
  return 0;
}

std::string text_of(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// The files of --out. exclude.txt is for `sbatch --exclude`, good_hostlist.txt for `srun
// --nodelist`.
constexpr std::array kFilesOfDirectory{"verdict.json", "events.jsonl", "report.md",
                                       "report.html",  "exclude.txt",  "good_hostlist.txt"};

void write_directory(const check::Verdict& verdict, const nlohmann::json& json, double now,
                     const Outputs& outputs) {
  const auto choice = check::choose_nodes(verdict, outputs.wanted);
  const std::array<std::string, kFilesOfDirectory.size()> contents{
      text_of(json, 2),
      check::events_of(verdict, now),
      check::markdown_of(verdict, choice),
      report::check_page(json),
      check::compress_hostlist(choice.leave_out) + (choice.leave_out.empty() ? "" : "\n"),
      choice.enough() ? check::compress_hostlist(choice.use) + "\n" : ""};
  std::filesystem::create_directories(outputs.directory);
  for (std::size_t i = 0; i < contents.size(); ++i) {
    tools::write_file(outputs.directory + "/" + kFilesOfDirectory[i], contents[i]);
  }
}

// Says how to take the bad nodes out of service, or does it.
void drain(const check::Verdict& verdict, const Outputs& outputs) {
  const auto drains = check::drains_of(verdict);
  if (drains.empty()) return;
  if (outputs.act) {
    fmt::print(stderr, "{}", tools::drain_nodes(drains));
    return;
  }
  for (const auto& one : drains) {
    fmt::print(stderr, "ddp-check: to drain it: {}\n", check::scontrol_line(one));
  }
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void publish(const check::Verdict& verdict, const Outputs& outputs) {
  std::string text = check::text_of(verdict);
  if (outputs.wanted > 0) {
    text += check::sentence_of(check::choose_nodes(verdict, outputs.wanted)) + "\n";
  }
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  const double now = seconds_since_1970();
  const auto json = check::json_of(verdict, program_name(), now);
  if (!outputs.exclude.empty()) tools::write_file(outputs.exclude, check::exclude_list(verdict));
  if (!outputs.json.empty()) tools::write_file(outputs.json, text_of(json, 2));
  if (!outputs.directory.empty()) write_directory(verdict, json, now, outputs);
  drain(verdict, outputs);
}

// The findings so far, for whoever comes after a check that was killed; nothing to act upon yet. A
// file that cannot be written is told of at the end, when it is written again.
void keep(const check::Verdict& verdict, const Outputs& outputs) {
  const std::string json =
      text_of(check::json_of(verdict, program_name(), seconds_since_1970()), 2);
  try {
    if (!outputs.json.empty()) tools::write_file(outputs.json, json);
    if (outputs.directory.empty()) return;
    std::filesystem::create_directories(outputs.directory);
    tools::write_file(outputs.directory + "/" + kFilesOfDirectory.front(), json);
  } catch (const std::exception&) {
    return;
  }
}

// What an earlier run wrote must not pass for this one's result if this one ends early.
void remove_outdated(const Outputs& outputs) {
  std::vector<std::string> files{outputs.json, outputs.exclude};
  if (!outputs.directory.empty()) {
    for (const char* name : kFilesOfDirectory) files.push_back(outputs.directory + "/" + name);
  }
  for (const auto& file : files) {
    if (!file.empty() && std::filesystem::is_regular_file(file)) std::filesystem::remove(file);
  }
}

// Ends the process; threads that still hang in the kernel or in MPI do not keep it.
int end(int exit_code, bool left_behind) {
  if (left_behind) {
    std::fflush(nullptr);
    std::_Exit(exit_code);
  }
  return exit_code;
}

int run_node(const NodeArguments& arguments, const Outputs& outputs) {
  check::NodeOptions options;
  remove_outdated(outputs);
  options.node = arguments.node.empty() ? check::host_name() : arguments.node;
  options.directories = arguments.directories;
  options.counters_file = arguments.counters;
  if (arguments.mtu > 0) options.interfaces.mtu = arguments.mtu;
  if (arguments.speed_gbps > 0) {
    options.interfaces.speed_mbps = static_cast<int>(arguments.speed_gbps * 1000);
  }
  const auto outcome = check::run_node_checks(options, check::process_environment());
  publish(outcome.verdict, outputs);
  return end(exit_code_of(outcome.verdict.severity()), outcome.left_behind);
}

check::NetOptions net_options(const NetArguments& arguments) {
  check::StepOptions step;
  if (arguments.port > 0) step.port = static_cast<std::uint16_t>(arguments.port);
  step.pretend_nodes = arguments.pretend_nodes;
  check::NetOptions options;
  options.host = check::host_name();
  options.step = check::step_from(check::process_environment(), options.host, step);
  options.program = program_name();
  options.injections = check::parse_injections(arguments.inject);
  options.deadline = tools::milliseconds(arguments.deadline);
  options.pair_limit = tools::milliseconds(arguments.pair_limit);
  options.join_limit = tools::milliseconds(arguments.join_limit);
  options.bytes = static_cast<std::size_t>(arguments.mib) << 20U;
  options.mpi = !arguments.no_mpi;
  options.verbs = !arguments.no_verbs;
  if (options.verbs) {
    options.rdma = check::find_rdma("/sys", arguments.write_bandwidth, arguments.hca);
  }
  options.nccl = !arguments.no_nccl;
  if (options.nccl) {
    options.nccl_tool.nccl_library = arguments.nccl_library;
    options.nccl_tool.cuda_library = arguments.cuda_library;
    options.nccl_tool = check::find_nccl(options.nccl_tool, kGpuPatience);
  }
  options.rails = arguments.rails;
  if (options.step.rank == 0) options.known_bad = tools::read_names(arguments.known_bad);
  options.seed = arguments.seed;
  options.rules = arguments.rules;
  options.rounds = arguments.rounds;
  if (arguments.expect_gbps > 0) {
    options.link_bytes_per_second = arguments.expect_gbps * 1e9 / 8;
  }
  if (arguments.min_busbw > 0) options.fewest_bus_bytes_per_second = arguments.min_busbw * 1e9;
  return options;
}

int run_net(const NetArguments& arguments, const Outputs& outputs) {
  check::NetOptions options = net_options(arguments);
  if (options.step.rank == 0) remove_outdated(outputs);
  options.progress = [](const std::string& line) { fmt::print(stderr, "ddp-check: {}\n", line); };
  options.publish = [&outputs](const check::Verdict& verdict) { publish(verdict, outputs); };
  options.keep = [&outputs](const check::Verdict& verdict) { keep(verdict, outputs); };
  const check::NetOutcome outcome = check::run_net(options);
  if (!outcome.complaint.empty()) fmt::print(stderr, "ddp-check: {}\n", outcome.complaint);
  return end(outcome.exit_code, outcome.left_behind);
}

constexpr const char* kDescription =
    "Names the bad node before the job starts.\n\n"
    "Examples:\n"
    "  ddp-check node --dir /scratch\n"
    "      this machine, in less than two seconds, without network traffic;\n"
    "      fit for SLURM's HealthCheckProgram\n"
    "  srun --ntasks-per-node=1 ddp-check net --exclude-file bad.txt && srun train\n"
    "      the nodes of the job; trains only if all is well\n"
    "  sbatch --exclude=\"$(paste -sd, bad.txt)\" job.sbatch\n"
    "      once more, without the bad nodes\n"
    "  mpirun -n 4 ddp-check net --pretend-nodes n[1-4] --inject slow:n3:0.1\n"
    "      see a slow node found, on one machine\n\n"
    "Prints a line for each finding that is not OK, then one line with the verdict.";

constexpr const char* kFooter =
    "\nExit codes, the same for all tasks of a step:\n"
    "  0 OK        everything measured and in order\n"
    "  1 WARNING   usable, but something is degraded\n"
    "  2 CRITICAL  do not use what is named\n"
    "  3 UNKNOWN   something could not be measured; also: wrong usage\n"
    "GB is 1e9 bytes, MiB is 2^20 bytes.";

// Of many tasks with the same mistake in the command line one speaks.
int complain(const std::string& text) {
  if (comm::rank_from_environment() == 0) fmt::print(stderr, "ddp-check: {}\n", text);
  return kUsage;
}

int run(int argc, char** argv) {
  CLI::App app(kDescription, "ddp-check");
  app.footer(kFooter);
  app.set_version_flag("--version", program_name());
  app.set_config("--config", "", "Read options from this file (TOML or INI; [net] and [node])")
      ->type_name("FILE");
  app.require_subcommand(1);
  app.fallthrough();
  // Repeated options: the last one counts, so that scripts can put their own after a site's.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Outputs outputs;
  NodeArguments node;
  NetArguments net;
  add_node(app, node, outputs);
  add_net(app, net, outputs);
  SimulateArguments simulation;
  add_simulate(app, simulation);
  NcclEndArguments nccl_end;
  add_nccl_end(app, nccl_end);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return comm::rank_from_environment() == 0 ? app.exit(success) : 0;
  } catch (const CLI::ParseError& error) {
    return complain(fmt::format("{}; see ddp-check --help", error.what()));
  }
  if (app.got_subcommand("nccl-end")) return run_nccl_end(nccl_end);
  if (app.got_subcommand("simulate")) return run_simulate(simulation);
  return app.got_subcommand("node") ? run_node(node, outputs) : run_net(net, outputs);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    return complain(error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "ddp-check: {}\n", error.what());
    return kUsage;
  }
}
