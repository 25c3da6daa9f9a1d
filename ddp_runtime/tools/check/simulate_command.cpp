// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/check/simulate_command.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/text.h"
#include "ddp_runtime/tools/validators.h"

namespace ddp::tools {

void add_simulate(CLI::App& app, SimulateArguments& arguments) {
  CLI::App& command = *app.add_subcommand(
      "simulate", "Simulate how often `net` finds exactly the bad nodes of a cluster");
  auto& simulation = arguments.simulation;
  const auto option = [&command](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->capture_default_str();
  };
  option("--nodes", simulation.nodes, "Number of nodes of a cluster")
      ->check(CLI::Range(4, 100'000));
  option("--bad", simulation.bad,
         "Number of bad nodes; with --fault link or loss, of links; with leaf, of switches")
      ->check(CLI::Range(0, 50'000));
  option("--bad-speed", simulation.bad_speed, "Speed of a bad node relative to a good one (0-1)")
      ->check(number_between(0.001, 0.999));
  command
      .add_option("--rounds", simulation.rounds,
                  "Number of random rounds of disjoint pairs [the default of `net`]")
      ->check(CLI::Range(1, 1000));
  option(
      "--model", arguments.model,
      "Noise of each direction: gauss, onesided (only slows), lognormal, tail (a fraction --noise "
      "is much slower), leaf:SIZE:RATIO (switches of SIZE nodes with uplinks RATIO times too "
      "small), hetero (one node in seven has a link of half the rate)");
  option("--noise", simulation.noise, "Standard deviation of a measurement; see --model")
      ->check(number_between(0.0, 0.5));
  option(
      "--fault", arguments.fault,
      "Kind of fault: node, send, receive, link, loss, intermittent:DUTY (in this fraction of the "
      "exchanges), leaf (nodes of one switch, towards other switches)");
  option("--congested", simulation.congested, "Fraction of exchanges slowed by other traffic")
      ->check(number_between(0.0, 0.9));
  option("--trials", simulation.trials, "Number of simulated clusters")
      ->check(CLI::Range(1, 1'000'000));
  option("--seed", simulation.seed, "Random seed");
  command.add_flag("!--no-retests,!--no-retrials", simulation.retests,
                   "Skip the retests and judge by the rounds alone");
}

int run_simulate(const SimulateArguments& arguments) {
  check::Simulation simulation = arguments.simulation;
  check::set_model(arguments.model, simulation);
  check::set_fault(arguments.fault, simulation);
  const auto result = check::simulate(simulation, arguments.rules);
  const auto percent = [&result](int count) { return 100.0 * count / result.trials; };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("{} of {} with {} bad ({}, {} with {:g}): exact {:.1f} %\n",
             counted(static_cast<std::size_t>(result.trials), "fleet"),
             counted(static_cast<std::size_t>(simulation.nodes), "node"), simulation.bad,
             arguments.fault, arguments.model, simulation.noise, percent(result.exact));
  fmt::print(
      "  exclude list right {:.1f} %, named at least with a WARNING {:.1f} %, false alarms {:.1f} "
      "%, good nodes excluded {:.1f} %\n"
      "  verdict UNKNOWN {:.1f} %, OK although something measured was bad {:.1f} %; detection "
      "limit {:.0f} % slower\n"
      "  {:.1f} rounds and retests; locating took at most {:.3f} s, {} MB in total\n",
      percent(result.right), percent(result.named), percent(result.false_alarms),
      percent(result.wrong_exclude), percent(result.unknown), percent(result.silent),
      100 * result.limit, result.steps, result.slowest_seconds, usage.ru_maxrss / 1000);
  return 0;
}

}  // namespace ddp::tools
