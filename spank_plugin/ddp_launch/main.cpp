// ddp-launch: the plan of `srun --ddp` without the plugin. Reads the facts from its environment,
// sets the planned variables in it, and becomes the command.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "spank_plugin/ddp_launch/command_line.h"
#include "spank_plugin/launch/environment.h"
#include "spank_plugin/launch/error.h"
#include "spank_plugin/launch/host/file_text.h"
#include "spank_plugin/launch/host/node_facts.h"
#include "spank_plugin/launch/hostfile.h"
#include "spank_plugin/launch/plan.h"
#include "spank_plugin/launch/render.h"

namespace ddp::launch {
namespace {

constexpr int kWorkFailed = 1;
constexpr int kUsageError = 2;

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

std::optional<std::string> from_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

// The process's environment; and what the plugin would have told the tasks of a hostfile, if the
// file's name is there and the file can be read here.
std::optional<std::string> look_up(const std::string& name) {
  constexpr std::size_t kMaxHostfile = 1U << 20U;
  if (name != variable::kRankZeroHost) return from_process(name);
  if (auto told = from_process(name)) return told;
  const auto path = from_process("SLURM_HOSTFILE");
  const auto text = path ? read_text(*path, kMaxHostfile) : std::nullopt;
  return text ? first_host_of_hostfile(*text) : std::nullopt;
}

Facts read_facts() {
  switch (detect_launcher(look_up)) {
    case Launcher::slurm: {
      Facts facts;
      facts.step = read_slurm_step(look_up);
      facts.task = read_slurm_task(look_up, facts.step);
      return facts;
    }
    case Launcher::open_mpi:
      return read_open_mpi(look_up, host_name());
    case Launcher::none:
      break;
  }
  return single_process(host_name(), static_cast<std::uint32_t>(getpid()));
}

Settings read_settings(const std::string& spec) {
  Settings settings;
  settings.mode = Mode::rank;  // whoever starts ddp-launch wants a plan
  if (const auto user = from_process(variable::kUserSpec)) {
    apply(settings, parse_spec(*user, variable::kUserSpec), Origin::environment);
  }
  if (!spec.empty()) apply(settings, parse_spec(spec, "--ddp"), Origin::command_line);
  return settings;
}

Plan plan_this_task(const Settings& settings) {
  Facts facts = read_facts();
  const Inherited inherited(look_up, facts.step.id);
  // Other tasks make their own plans at this very moment: only one alone may choose a port.
  const bool alone = facts.step.task_count == 1;
  facts.node = gather_node_facts(facts.step, settings, inherited, alone);
  Plan plan = make_plan(facts, settings, inherited);
  if (plan.rank == 0 && !alone) require_free_master_port(plan, settings, inherited);
  if (facts.step.launcher == Launcher::none && from_process("SLURM_JOB_ID")) {
    plan.notes.emplace_back(
        "this is no task of a SLURM step, so it is a world of one; srun starts one rank per task");
  }
  return plan;
}

void print_plan(const Plan& plan, CommandLine::Format format) {
  std::string text;
  switch (format) {
    case CommandLine::Format::table:
      text = plan.rank == 0 ? render_table(plan) : render_task_line(plan) + "\n";
      break;
    case CommandLine::Format::json:
      text = render_json(plan) + "\n";
      break;
    case CommandLine::Format::exports:
      text = render_exports(plan);
      break;
  }
  if (std::fputs(text.c_str(), stdout) == EOF || std::fflush(stdout) != 0) {
    throw LaunchError("cannot write to standard output: " + std::string(std::strerror(errno)));
  }
}

void set_variables(const Plan& plan, bool verbose) {
  for (const auto& entry : plan.entries) {
    if (!entry.kept && setenv(entry.name.c_str(), entry.value.c_str(), 1) != 0) {
      throw LaunchError("cannot set " + entry.name + ": " + std::strerror(errno));
    }
  }
  if (plan.rank == 0) {
    std::fprintf(stderr, "ddp: %s\n", render_summary(plan).c_str());
    for (const auto& note : plan.notes) std::fprintf(stderr, "ddp: note: %s\n", note.c_str());
  }
  if (verbose) std::fprintf(stderr, "ddp: %s\n", render_task_line(plan).c_str());
}

// Becomes the command; returns the exit code that shells use if that fails.
int become(std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (auto& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  const int error = errno;
  std::fprintf(stderr, "ddp-launch: cannot run '%s': %s\n", arguments.front(),
               std::strerror(error));
  return error == ENOENT ? 127 : 126;
}

int run(CommandLine& line) {
  Settings settings;
  try {
    settings = read_settings(line.spec);
  } catch (const LaunchError& error) {
    std::fprintf(stderr, "ddp-launch: %s\n", error.what());
    return kUsageError;
  }
  const bool explain = line.action == CommandLine::Action::explain || settings.explain;
  if (settings.mode == Mode::off && !explain) return become(line.command);
  const Plan plan = plan_this_task(settings);
  if (explain) {
    print_plan(plan, line.format);
    return 0;
  }
  set_variables(plan, settings.verbose);
  return become(line.command);
}

}  // namespace
}  // namespace ddp::launch

int main(int argc, char** argv) {
  try {
    auto parsed = ddp::launch::parse_command_line(argc, argv);
    if (parsed.ends) return parsed.exit_code;
    return ddp::launch::run(parsed.command_line);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddp-launch: %s\n", error.what());
    return ddp::launch::kWorkFailed;
  }
}
