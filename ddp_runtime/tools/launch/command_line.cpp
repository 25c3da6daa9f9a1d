// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/launch/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "ddp_runtime/tools/help_lines.h"
#include "slurm_ddp/version.h"
#include "spank_plugin/launch/settings/spec.h"

namespace ddp::launch {
namespace {

constexpr const char* kDescription =
    R"(ddp-launch [--ddp SPEC] [--watch] [--] COMMAND [ARGUMENTS]     ddp-launch explain [--format FORMAT]

Becomes COMMAND, or with --watch its parent, in the environment of one rank of a training job:
RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, GROUP_RANK, MASTER_ADDR, MASTER_PORT.
Makes the same plan as `srun --ddp`, for clusters without the plugin; also works under mpirun and
for a single process.)";

constexpr const char* kExamples = R"(
Examples:
  srun -N2 --ntasks-per-node=4 ddp-launch python train.py     8 ranks on 2 nodes
  srun -N2 --ntasks-per-node=1 ddp-launch torchrun train.py   one torchrun per node, no options
  mpirun -n 4 ddp-launch python train.py                      4 ranks on this host
  ddp-launch python train.py                                  one rank
  srun -N2 -n8 ddp-launch explain                             show each variable, and why
  srun -n2 ddp-launch --ddp master_port=29500 -- ./train --epochs 3

)";

constexpr const char* kRules = R"(
Without --ddp, SPEC is read from the variable SLURM_DDP. Variables that you set yourself are kept,
except those that number the ranks.

Exit codes: that of the command, or 1 if no plan can be made, 2 for a usage error, 126 if the
command cannot be executed, 127 if it is not found.)";

std::string footer() {
  std::string text = "SPEC is a comma-separated list of\n";
  const auto add = [&text](const SpecItem& item) {
    std::string name(item.name);
    if (!item.values.empty()) name += "=" + std::string(item.values);
    name.resize(std::max<std::size_t>(name.size() + 2, 28), ' ');
    text += "  " + name + std::string(item.meaning) + "\n";
  };
  for (const auto& word : spec_words()) add(word);
  for (const auto& key : spec_keys()) add(key);
  return kExamples + text + kRules;
}

CommandLine::Format format_named(const std::string& name) {
  if (name == "json") return CommandLine::Format::json;
  if (name == "taskprolog") return CommandLine::Format::task_prolog;
  return name == "export" ? CommandLine::Format::exports : CommandLine::Format::table;
}

// prefix_command() takes the first unknown word as the start of the command, even if it is an
// option. A command may start with a dash only after "--".
void take_command(std::vector<std::string> words, bool after_dashes, CommandLine& line) {
  if (!words.empty() && words.front() == "--") {
    words.erase(words.begin());
  } else if (!words.empty() && words.front().starts_with("-") && !after_dashes) {
    throw CLI::ExtrasError({words.front()});
  }
  line.command = std::move(words);
}

}  // namespace

ParsedCommandLine parse_command_line(int argc, char** argv) {
  ParsedCommandLine parsed;
  CommandLine& line = parsed.command_line;
  CLI::App app(kDescription, "ddp-launch");
  tools::keep_help_lines(app);
  app.footer(footer());
  app.set_version_flag("--version", std::string("ddp-launch ") + kVersion);
  app.set_config("--config", "", "Read options from this file (INI or TOML)");
  app.add_option("--ddp", line.spec, "Comma-separated settings; see below")->type_name("SPEC");
  app.add_flag("--watch", line.watch, "Watch the ranks of this node, as --ddp=watch does");
  app.prefix_command();

  std::string format = "table";
  auto* explain =
      app.add_subcommand("explain", "Print the plan of this task instead of running a command");
  explain
      ->add_option("--format", format,
                   "table, json (one line), export (for a POSIX shell), or taskprolog")
      ->check(CLI::IsMember({"table", "json", "export", "taskprolog"}))
      ->type_name("FORMAT");
  explain->add_flag("-v,--verbose", line.verbose,
                    "Print the whole plan of every task and the facts it is based on");
  explain->prefix_command(false);
  explain->fallthrough();  // --ddp and --config may also follow this subcommand
  try {
    app.parse(argc, argv);
    take_command(app.remaining(), std::find(argv, argv + argc, std::string("--")) != argv + argc,
                 line);
    if (explain->parsed()) {
      if (!line.command.empty()) throw CLI::ExtrasError(line.command);
      line.action = CommandLine::Action::explain;
      line.format = format_named(format);
    } else if (line.command.empty()) {
      throw CLI::RequiredError("a command to run, e.g. ddp-launch python train.py,");
    }
  } catch (const CLI::ParseError& error) {
    parsed.ends = true;
    parsed.exit_code = app.exit(error) == 0 ? 0 : kUsageError;
  }
  return parsed;
}

}  // namespace ddp::launch
