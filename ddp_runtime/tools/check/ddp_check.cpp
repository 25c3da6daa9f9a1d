// SPDX-License-Identifier: Apache-2.0
// ddp-check: finds bad nodes before the job starts. `node` checks only this machine; `net` checks
// the network between the tasks of a job step.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "base/errors.h"
#include "ddp_runtime/comm/group/launcher_rank.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/tools/check/bounded_config.h"
#include "ddp_runtime/tools/check/check_outputs.h"
#include "ddp_runtime/tools/check/ending.h"
#include "ddp_runtime/tools/check/nccl_end_command.h"
#include "ddp_runtime/tools/check/net_command.h"
#include "ddp_runtime/tools/check/node_command.h"
#include "ddp_runtime/tools/check/simulate_command.h"
#include "ddp_runtime/tools/help_lines.h"

namespace {

using namespace ddp;

constexpr const char* kDescription =
    "Finds bad nodes before the job starts.\n\n"
    "Examples:\n"
    "  ddp-check node --dir /scratch\n"
    "      Check this machine in less than two seconds, without network traffic;\n"
    "      suitable for SLURM's HealthCheckProgram.\n"
    "  srun --mpi=pmix --ddp --ntasks-per-node=1 ddp-check net --exclude-file bad.txt && srun "
    "train\n"
    "      Check the nodes of the job, and train only if all of them are healthy.\n"
    "  sbatch --exclude=\"$(paste -sd, bad.txt)\" job.sbatch\n"
    "      Submit the job again without the bad nodes.\n"
    "  mpirun -n 4 ddp-check net --pretend-nodes n[1-4] --inject slow:n3:0.1\n"
    "      Watch the check find a simulated slow node, on one machine.\n\n"
    "Prints a line for each finding that is not OK and for each note, then one line with the "
    "verdict.";

constexpr const char* kFooter =
    "\nExit codes, the same for all tasks of a step:\n"
    "  0 OK        all checks ran and found no problem\n"
    "  1 WARNING   usable, but degraded\n"
    "  2 CRITICAL  do not use the named nodes, ports or links\n"
    "  3 UNKNOWN   a check could not run; also usage errors\n"
    "GB is 1e9 bytes, MiB is 2^20 bytes.";

// If many tasks have the same error in the command line, only rank 0 reports it.
int complain(const std::string& text) {
  if (comm::rank_from_environment() == 0) fmt::print(stderr, "ddp-check: {}\n", text);
  comm::let_rank_0_report();
  return tools::kUsage;
}

int run(int argc, char** argv) {
  CLI::App app(kDescription, "ddp-check");
  tools::keep_help_lines(app);
  app.footer(kFooter);
  app.set_version_flag("--version", tools::program_name());
  app.config_formatter(std::make_shared<tools::BoundedConfig>());
  app.set_config("--config", "", "Read options from this file (TOML or INI; [net] and [node])")
      ->type_name("FILE");
  app.require_subcommand(1);
  app.fallthrough();
  // If an option is repeated, the last value counts, so that scripts can append options to those of
  // a site.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  // Each command stores its options separately, because a --config file sets the options of both
  // commands.
  tools::CheckOutputs node_outputs;
  tools::CheckOutputs net_outputs;
  tools::NodeArguments node;
  tools::NetArguments net;
  tools::add_node(app, node, node_outputs);
  tools::add_net(app, net, net_outputs);
  tools::SimulateArguments simulation;
  tools::add_simulate(app, simulation);
  tools::NcclEndArguments nccl_end;
  tools::add_nccl_end(app, nccl_end);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return comm::rank_from_environment() == 0 ? app.exit(success) : 0;
  } catch (const CLI::RequiredError& error) {
    const std::string first = argc > 1 ? argv[1] : "";
    if (first.empty() || first.starts_with('-') || !app.get_subcommands().empty()) {
      return complain(fmt::format("{}; see ddp-check --help", error.what()));
    }
    return complain(fmt::format("unknown command '{}'; use node, net or simulate", first));
  } catch (const CLI::ParseError& error) {
    return complain(fmt::format("{}; see ddp-check --help", error.what()));
  }
  if (app.got_subcommand("nccl-end")) return tools::run_nccl_end(nccl_end);
  if (app.got_subcommand("simulate")) return tools::run_simulate(simulation);
  return app.got_subcommand("node") ? tools::run_node(node, node_outputs)
                                    : tools::run_net(net, net_outputs);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    return complain(error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "ddp-check: {}\n", error.what());
    return tools::kUsage;
  }
}
