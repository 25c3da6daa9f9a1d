// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/run/simulate_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>

#include "base/duration.h"
#include "base/errors.h"
#include "ddp_runtime/elastic/simulate.h"
#include "ddp_runtime/tools/help_lines.h"
#include "ddp_runtime/tools/validators.h"

namespace ddp::tools {
namespace {

constexpr double kHour = 3600;
constexpr double kDay = 86400;

struct Request {
  elastic::SimulatedJob job;
  double days = 30;
  double mtbf_hours = 6334;
  double repair_hours = 12;
  int trials = 5;
};

void add_options_of_simulation(CLI::App& app, Request& request) {
  auto& job = request.job;
  const auto option = [&app](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->capture_default_str();
  };
  option("--nodes", job.nodes, "Nodes of the job, without spares")->check(whole_number(1, 100'000));
  option("--spares", job.spares, "Nodes that replace others")->check(whole_number(0, 100'000));
  app.add_option("--min-nodes", job.min_nodes, "Nodes that must be left [nine tenths]")
      ->check(whole_number(1, 100'000));
  option("--mtbf", request.mtbf_hours, "Mean time between failures of one node, in hours")
      ->check(positive());
  option("--repair", request.repair_hours, "Hours until a broken node can be used again")
      ->check(positive());
  option("--stall", job.stall, "Seconds that a checkpoint costs")->check(positive());
  app.add_option("--interval", job.interval,
                 "Seconds between checkpoints [the best, by Young's formula]")
      ->check(positive());
  option("--restart", job.restart, "Seconds from a start of the program to its first step")
      ->check(not_negative());
  option("--days", request.days, "Length of the job")->check(positive());
  option("--trials", request.trials, "Number of simulated jobs")->check(whole_number(1, 10'000));
}

int simulate_and_print(Request& request) {
  auto& job = request.job;
  job.length = request.days * kDay;
  job.node_mtbf = request.mtbf_hours * kHour;
  job.repair = request.repair_hours * kHour;
  double sum = 0;
  double least = 1;
  double most = 0;
  double per_node = 0;
  double failures = 0;
  for (int trial = 0; trial < request.trials; ++trial) {
    const auto outcome = elastic::simulate(job, static_cast<std::uint64_t>(trial));
    sum += outcome.ettr;
    least = std::min(least, outcome.ettr);
    most = std::max(most, outcome.ettr);
    per_node += outcome.per_node;
    failures += outcome.failures;
  }
  const double trials = request.trials;
  fmt::print(
      "{} nodes and {} spares for {:g} days: {:.1f} failures, one each {}\n"
      "checkpoints every {}{}\n"
      "effective training time: {:.4f} of the time ({:.4f} to {:.4f} in {} trials), {:.4f} per "
      "node "
      "of the allocation\n",
      job.nodes, job.spares, request.days, failures / trials,
      rounded_duration(job.node_mtbf / static_cast<double>(job.nodes)),
      rounded_duration(job.interval > 0 ? job.interval : elastic::young_interval(job)),
      job.interval > 0 ? "" : ", the best interval", sum / trials, least, most, request.trials,
      per_node / trials);
  return 0;
}

}  // namespace

int run_simulate_command(int argc, char** argv) {
  CLI::App app(
      "Simulates jobs whose nodes fail, with the decisions of ddp-run, and predicts which part of "
      "their time they make progress.\n\n"
      "Examples:\n"
      "  ddp-run simulate --nodes 1250 --stall 10 --restart 90\n"
      "  ddp-run simulate --nodes 64 --spares 1 --min-nodes 64   is a spare worth its price?",
      "ddp-run simulate");
  keep_help_lines(app);
  Request request;
  add_options_of_simulation(app, request);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    throw UsageError(e.what());
  }
  return simulate_and_print(request);
}

}  // namespace ddp::tools
