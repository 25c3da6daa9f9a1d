// SPDX-License-Identifier: Apache-2.0
// ddp-run: starts a program on the nodes of a job, and again when ranks or nodes fail.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/comm/ddp_run/run_memory.h"
#include "ddp_runtime/comm/group/launcher_rank.h"
#include "ddp_runtime/elastic/run/agent.h"
#include "ddp_runtime/elastic/run/host_watch.h"
#include "ddp_runtime/elastic/run/run_environment.h"
#include "ddp_runtime/elastic/run/run_loop.h"
#include "ddp_runtime/tools/help_lines.h"
#include "ddp_runtime/tools/run/run_arguments.h"
#include "ddp_runtime/tools/run/simulate_command.h"
#include "slurm_ddp/version.h"

namespace {

using namespace ddp;

constexpr const char* kDescription =
    "Starts a program on the nodes of a job, and again when ranks or nodes fail.\n\n"
    "Examples:\n"
    "  ddp-run --nodes 2:4 --max-restarts 10 -- ddp-train --checkpoint-dir run\n"
    "      In a batch script with `#SBATCH --no-kill`: trains on 4 nodes, and on 3 or 2 of them\n"
    "      if others fail. The program must load its newest checkpoint when it starts.\n"
    "  ddp-run --ranks-per-node 2 -- python train.py\n"
    "      On this host, without SLURM: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set.\n"
    "  ddp-run --launcher mpirun --ranks-per-node 2 -- ddp-train --checkpoint-dir run\n"
    "      On this host, for a program that uses MPI.\n"
    "  ddp-run simulate --help\n"
    "      Predict how much of its time a large job would make progress.";

constexpr const char* kFooter =
    "\nExit codes:\n"
    "  0   the program has ended well on all ranks\n"
    "  1   it failed, and is not started again\n"
    "  2   the command line of ddp-run or of the program is wrong\n"
    "  75  to be continued: the job has to end, or has too few nodes\n"
    "  130 interrupted a second time (Ctrl-C), before the program had saved";

// Processes that were killed hold their memory for a moment.
constexpr std::chrono::seconds kMemoryPatience{5};

int run_task(const std::vector<std::string>& program) {
  const char* told = std::getenv(elastic::kRankVariable);
  const int rank = told == nullptr ? comm::rank_from_environment()
                                   : static_cast<int>(parse_decimal(told, INT_MAX).value_or(0));
  return elastic::run_agent(elastic::agent_settings_from_environment(rank), program);
}

int run(int argc, char** argv) {
  CLI::App app(kDescription, "ddp-run");
  tools::keep_help_lines(app);
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("ddp-run ") + ddp::kVersion);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  tools::RunArguments arguments;
  tools::add_run_options(app, arguments);
  app.prefix_command();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    throw UsageError(e.what());
  }
  auto program = app.remaining();
  if (!program.empty() && program.front() == "--") {
    program.erase(program.begin());
  } else if (!program.empty() && program.front().starts_with('-')) {
    throw UsageError(
        fmt::format("unknown option {}; see ddp-run --help", quote_for_display(program.front())));
  }
  if (program.empty()) throw UsageError("no program is given; put it after --");
  return elastic::run_with_restarts(tools::plan_run(std::move(arguments), std::move(program)));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    // Started by ddp-run itself, once per rank: ddp-run task -- PROGRAM
    if (argc > 3 && std::string_view(argv[1]) == "task" && std::string_view(argv[2]) == "--") {
      return run_task({argv + 3, argv + argc});
    }
    // Started by ddp-run itself, once per node, when it ends: ddp-run forget --
    if (argc == 3 && std::string_view(argv[1]) == "forget" && std::string_view(argv[2]) == "--") {
      if (const auto id = comm::run_id()) comm::remove_run_memory(*id, kMemoryPatience);
      return 0;
    }
    // Started by ddp-run itself, once, on another node: ddp-run watch -- NODE
    if (argc == 4 && std::string_view(argv[1]) == "watch" && std::string_view(argv[2]) == "--") {
      return elastic::watch_host(argv[3]);
    }
    if (argc > 1 && std::string_view(argv[1]) == "simulate") {
      return tools::run_simulate_command(argc - 1, argv + 1);
    }
    return run(argc, argv);
  } catch (const UsageError& e) {
    if (*e.what() != '\0') tools::complain(e.what());
    return 2;
  } catch (const std::exception& e) {
    tools::complain(e.what());
    return 1;
  }
}
