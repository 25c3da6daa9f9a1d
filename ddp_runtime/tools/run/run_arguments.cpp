// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/run/run_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "base/file_descriptor.h"
#include "base/host.h"
#include "base/hostlist.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "ddp_runtime/elastic/equal_parts.h"
#include "ddp_runtime/tools/validators.h"
#include "spank_plugin/launch/host/switch_query.h"
#include "spank_plugin/launch/step/switch_map.h"

namespace ddp::tools {
namespace {

// SLURM needs a while to notice that a node is down.
constexpr int kFailedLaunchesOfSlurm = 6;
constexpr double kLaunchPauseOfSlurm = 5;

std::string variable_or(const char* name, const std::string& missing) {
  const char* value = std::getenv(name);
  return value == nullptr ? missing : value;
}

// The path of this program, which other hosts have, too.
std::string own_path() {
  std::array<char, PATH_MAX> path{};
  const auto length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : "ddp-run";
}

std::pair<std::size_t, std::size_t> range_of(const std::string& text) {
  const auto parts = split(text, ':');
  const auto min = parse_decimal(parts.front(), kMaxHosts);
  const auto max = parse_decimal(parts.back(), kMaxHosts);
  if (parts.size() > 2 || !min || !max || *min == 0 || *min > *max) {
    throw UsageError(
        fmt::format("--nodes {} is not MIN:MAX, such as 2:4", quote_for_display(text)));
  }
  return {*min, *max};
}

elastic::LauncherKind launcher_of(const std::string& name, bool in_job) {
  using elastic::LauncherKind;
  if (name == "srun" && !in_job) {
    throw UsageError("--launcher srun needs a SLURM job; start ddp-run in a batch script");
  }
  if (name == "srun" || (name == "auto" && in_job)) return LauncherKind::srun;
  return name == "mpirun" ? LauncherKind::mpirun : LauncherKind::direct;
}

// The command line of the program with what its configuration file says. ddp-train itself has the
// words for a file that cannot be read.
std::vector<std::string> with_configuration(const std::vector<std::string>& program) {
  constexpr std::uintmax_t kMaxFile = 1U << 20U;
  const auto path = elastic::option_of_ddp_train(program, "--config");
  std::error_code error;
  if (!path || !std::filesystem::is_regular_file(*path, error) ||
      std::filesystem::file_size(*path, error) > kMaxFile) {
    return program;
  }
  std::vector<std::string> options;
  try {
    for (const auto& item : CLI::ConfigBase().from_file(*path)) {
      if (item.parents.empty() && item.inputs.size() == 1) {
        options.push_back("--" + item.name + "=" + item.inputs.front());
      }
    }
  } catch (const CLI::Error&) {
    return program;
  }
  return elastic::with_options_of_ddp_train(program, options);
}

// Leaves out numbers of nodes on which the program could not divide its step.
void require_equal_parts(std::uint64_t blocks, const std::vector<std::string>& told,
                         elastic::Settings& settings) {
  auto divisible = elastic::divisible_by_ranks(told);
  if (blocks > 0) divisible = {blocks, fmt::format("--blocks {}", blocks)};
  if (!divisible) return;
  settings.sizes = elastic::sizes_with_equal_parts(settings, *divisible);
  if (settings.sizes.size() == settings.max_nodes - settings.min_nodes + 1) return;
  complain(fmt::format(
      "{} does not divide evenly on every size from {} to {} nodes; only these "
      "will be used: {}",
      divisible->source, settings.min_nodes, settings.max_nodes, fmt::join(settings.sizes, ", ")));
}

// A cluster without a map of its switches is the usual case, and none is worth waiting for long.
elastic::Switches switches_of(const std::vector<std::string>& nodes) {
  elastic::Switches switches;
  try {
    const auto map = launch::query_switch_map();
    if (map.empty()) return switches;
    const auto paths = launch::switch_paths(map, nodes);
    for (std::size_t i = 0; i < nodes.size(); ++i) switches[nodes[i]] = paths[i];
  } catch (const UsageError& error) {
    complain(fmt::format("spares are taken in the order of the job: {}", error.what()));
  }
  return switches;
}

// Several supervisors would each start all ranks. The first of them has the sentence for all.
void refuse_several() {
  constexpr std::uint64_t kMost = 10'000'000;
  for (const auto& [launcher, count, number] :
       {std::array{"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
        std::array{"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}}) {
    const auto tasks = parse_decimal(variable_or(count, "1"), kMost).value_or(1);
    if (tasks < 2) continue;
    if (variable_or(number, "0") != "0") {
      // mpirun ends all of them as soon as one has failed.
      constexpr auto kTimeToSpeak = std::chrono::seconds(2);
      std::this_thread::sleep_for(kTimeToSpeak);
      throw UsageError("");
    }
    throw UsageError(fmt::format(
        "{} has started it {} times ({}); start it once, in the batch script itself: it starts the "
        "ranks",
        launcher, tasks, count));
  }
}

// Where the program runs, and how it is started there.
void complete_launch(const RunArguments& arguments, elastic::RunPlan& plan) {
  const auto list = variable_or("SLURM_JOB_NODELIST", "");
  auto& launch = plan.launch;
  launch.kind = launcher_of(arguments.launcher, !list.empty());
  const bool slurm = launch.kind == elastic::LauncherKind::srun;
  launch.allocation = slurm ? expand_hostlist(list) : std::vector<std::string>{host_name()};
  launch.agent = own_path();
  if (arguments.launcher_options.find_first_of("'\"") != std::string::npos) {
    throw UsageError("--launcher-options are words between blanks, without quotes");
  }
  for (const auto word : words_of(arguments.launcher_options)) launch.options.emplace_back(word);
  if (launch.kind == elastic::LauncherKind::direct && !launch.options.empty()) {
    throw UsageError("--launcher-options are for srun and mpirun, which --launcher names");
  }
  plan.own_node = variable_or("SLURMD_NODENAME", "");
  plan.settings.ranks_per_node = launch.ranks_per_node;
}

// On how many of the job's nodes.
void complete_sizes(const RunArguments& arguments, std::size_t available,
                    elastic::Settings& settings) {
  const auto spares = static_cast<std::size_t>(arguments.spares);
  if (arguments.nodes.empty()) {
    if (spares >= available) {
      throw UsageError(
          fmt::format("--spares {} leaves none of the job's {} nodes", spares, available));
    }
    settings.max_nodes = available - spares;
    settings.min_nodes = settings.max_nodes;
    return;
  }
  std::tie(settings.min_nodes, settings.max_nodes) = range_of(arguments.nodes);
  if (spares > 0 && settings.max_nodes + spares > available) {
    throw UsageError(fmt::format("--nodes {} and --spares {} need {} nodes, but the job has {}",
                                 arguments.nodes, spares, settings.max_nodes + spares, available));
  }
}

// What happens after failures.
void complete_policy(const RunArguments& arguments, elastic::RunPlan& plan) {
  auto& settings = plan.settings;
  const bool slurm = plan.launch.kind == elastic::LauncherKind::srun;
  if (arguments.requeue && !slurm) throw UsageError("--requeue needs a SLURM job");
  settings.can_requeue = arguments.requeue;
  settings.check_nodes = slurm && !arguments.no_check;
  if (settings.check_nodes && !can_be_executed(plan.check)) {
    throw UsageError(
        fmt::format("--check {}: there is no such program; name another, or use --no-check",
                    quote_for_display(plan.check)));
  }
  if (slurm) {
    settings.max_failed_launches = kFailedLaunchesOfSlurm;
    settings.launch_pause = kLaunchPauseOfSlurm;
  } else {
    settings.strikes = INT_MAX;  // on one host, there is no other node to go to
  }
}

void complete_journal(const RunArguments& arguments, const std::vector<std::string>& told,
                      elastic::RunPlan& plan) {
  auto& journal = plan.journal;
  const bool slurm = plan.launch.kind == elastic::LauncherKind::srun;
  journal.report_directory = !arguments.report_directory.empty()
                                 ? arguments.report_directory
                                 : elastic::option_of_ddp_train(told, "--report-dir").value_or("");
  journal.job = slurm ? variable_or("SLURM_JOB_ID", "") : "";
  journal.restart =
      static_cast<int>(parse_decimal(variable_or("SLURM_RESTART_COUNT", "0"), INT_MAX).value_or(0));
}

}  // namespace

void complain(const std::string& text) {
  const auto line = fmt::format("ddp-run: {}\n", text);
  [[maybe_unused]] const bool written = write_all(STDERR_FILENO, line);
}

elastic::RunPlan plan_run(RunArguments arguments, std::vector<std::string> program) {
  refuse_several();
  auto plan = std::move(arguments.plan);
  const auto told = with_configuration(program);
  plan.launch.program = std::move(program);
  complete_launch(arguments, plan);
  const auto& nodes = plan.launch.allocation;
  complete_sizes(arguments, nodes.size(), plan.settings);
  require_equal_parts(arguments.blocks, told, plan.settings);
  complete_policy(arguments, plan);
  complete_journal(arguments, told, plan);
  const bool slurm = plan.launch.kind == elastic::LauncherKind::srun;
  if (slurm && plan.settings.max_nodes < nodes.size()) plan.switches = switches_of(nodes);
  return plan;
}

void add_run_options(CLI::App& app, RunArguments& arguments) {
  auto& plan = arguments.plan;
  auto& settings = plan.settings;
  app.add_option("--nodes", arguments.nodes,
                 "Least and largest number of nodes [all nodes of the job but the spares]")
      ->type_name("MIN:MAX");
  app.add_option("--spares", arguments.spares, "Nodes that replace others and are idle until then")
      ->check(tools::whole_number(0, kMaxHosts))
      ->capture_default_str();
  app.add_option("--ranks-per-node", plan.launch.ranks_per_node, "Processes on each node")
      ->check(tools::whole_number(1, 1024))
      ->capture_default_str();
  app.add_option("--blocks", arguments.blocks,
                 "Start only numbers of ranks that divide this one [--blocks or --global-batch of "
                 "ddp-train, if that is started; else any number]")
      ->check(tools::whole_number(1, 1'000'000'000'000));
  app.add_option("--max-restarts", settings.max_restarts,
                 "Restarts after failures; 30 minutes of progress give one back")
      ->check(tools::whole_number(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--wait-for-nodes", settings.wait_for_nodes,
                 "Seconds to wait if fewer than MIN nodes can be used")
      ->check(tools::not_negative())
      ->capture_default_str();
  app.add_option("--cooldown", settings.cooldown,
                 "Seconds for which a lost or bad node is not used; doubled each time")
      ->check(tools::positive())
      ->capture_default_str();
  app.add_option("--grow-every", settings.grow_every,
                 "Seconds between two starts that only add nodes")
      ->check(tools::not_negative())
      ->capture_default_str();
  app.add_option("--launcher", arguments.launcher,
                 "What starts the processes: srun, mpirun or direct [srun in a SLURM job, else "
                 "direct]")
      ->check(CLI::IsMember({"auto", "srun", "mpirun", "direct"}));
  app.add_option("--launcher-options", arguments.launcher_options,
                 "Further options of srun or mpirun, such as \"--mpi=pmix --ddp\"");
  app.add_option("--check", plan.check, "The program that checks a node after a failure")
      ->capture_default_str();
  app.add_flag("--no-check", arguments.no_check, "Use nodes after a failure without checking them");
  app.add_flag("--requeue", arguments.requeue,
               "Requeue the job if too few nodes can be used; else exit with 75");
  app.add_option("--events", plan.journal.events_file,
                 "Append what happens to this file, as JSON lines [events.jsonl in the report "
                 "directory, if there is one]");
  app.add_option("--report-dir", arguments.report_directory,
                 "Where run.json is, which tells at the end where the time went [that of "
                 "ddp-train, if that is started]");
}

}  // namespace ddp::tools
