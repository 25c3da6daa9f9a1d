#include "ddp_runtime/tools/check/simulate_command.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "ddp_runtime/comm/errors.h"

namespace ddp::tools {

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

}  // namespace ddp::tools
