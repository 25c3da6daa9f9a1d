// SPDX-License-Identifier: Apache-2.0
// ddp-launch: applies the plan of `srun --ddp` without the plugin. It reads the facts from its
// environment, sets the planned variables, and executes the command.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>

#include "base/file_descriptor.h"
#include "base/host.h"
#include "base/text.h"
#include "base/text_file.h"
#include "ddp_runtime/tools/launch/command_line.h"
#include "spank_plugin/guard/guard.h"
#include "spank_plugin/guard/node_record.h"
#include "spank_plugin/guard/python_path.h"
#include "spank_plugin/guard/signal_rule.h"
#include "spank_plugin/launch/host/cpu_mask.h"
#include "spank_plugin/launch/host/fabric_facts.h"
#include "spank_plugin/launch/host/gpu_devices.h"
#include "spank_plugin/launch/host/node_facts.h"
#include "spank_plugin/launch/plan/plan.h"
#include "spank_plugin/launch/plan/render.h"
#include "spank_plugin/launch/step/environment.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/hostfile.h"
#include "spank_plugin/launch/step/step_command.h"
#include "spank_plugin/launch/step/unknown_launcher.h"

namespace ddp::launch {
namespace {

constexpr int kWorkFailed = 1;

std::optional<std::string> from_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

// Looks up a variable in the environment. For a step with a hostfile, also provides the variable
// that the plugin would have set, if the environment names the hostfile and it is readable.
std::optional<std::string> look_up(const std::string& name) {
  constexpr std::size_t kMaxHostfile = 1U << 20U;
  if (name != variable::kRankZeroHost) return from_process(name);
  if (auto told = from_process(name)) return told;
  const auto path = from_process("SLURM_HOSTFILE");
  const auto text = path ? read_text(*path, kMaxHostfile) : std::nullopt;
  return text ? first_host_of_hostfile(*text) : std::nullopt;
}

Facts read_facts() {
  refuse_unknown_launcher(look_up);
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
  return single_process(look_up, host_name(), static_cast<std::uint32_t>(getpid()));
}

Settings read_settings(const std::string& spec) {
  Settings settings;
  // Settings of an enclosing `srun --ddp` also apply to ddp-launch.
  const auto around = from_process(variable::kSettings);
  if (around && detect_launcher(look_up) == Launcher::slurm) settings = decode_settings(*around);
  settings.explain.reset();
  // Running ddp-launch is itself a request for a plan.
  if (!settings.is_on()) settings.mode = {Mode::automatic, Origin::command_line};
  if (const auto user = from_process(variable::kUserSpec)) {
    apply(settings, parse_spec(*user, variable::kUserSpec), Origin::environment);
  }
  if (!spec.empty()) apply(settings, parse_spec(spec, "--ddp"), Origin::command_line);
  return settings;
}

struct Planned {
  Facts facts;
  Plan plan;
};

Planned plan_this_task(const Settings& settings, const std::vector<std::string>& command) {
  Planned planned{read_facts(), {}};
  Facts& facts = planned.facts;
  const std::vector<std::string_view> words(command.begin(), command.end());
  facts.step.command = read_step_command(words);
  facts.task.cpus = read_cpu_mask();
  if (settings.gpus.value == GpuPolicy::shared) facts.task.hides_gpu_devices = hides_gpu_devices();
  const Inherited inherited(look_up, facts.step.id);
  // Other tasks make their own plans at the same time, so only a single task may choose a port.
  const bool alone = facts.step.task_count == 1;
  facts.node = gather_node_facts(facts.step, settings, inherited, alone);
  facts.fabric = find_fabric_part(facts, settings, look_up, inherited);
  planned.plan = make_plan(facts, settings, inherited);
  check_planned_ports(planned.plan, facts, settings, inherited);
  if (facts.step.launcher == Launcher::none && from_process("SLURM_JOB_ID")) {
    planned.plan.notes.emplace_back(
        "this process is not a task of a SLURM step, so it is a world of one; srun starts one rank "
        "per task");
  }
  return planned;
}

std::string explanation(const Planned& planned, const Settings& settings,
                        CommandLine::Format format) {
  const Plan& plan = planned.plan;
  switch (format) {
    case CommandLine::Format::json:
      return render_json(plan) + "\n";
    case CommandLine::Format::exports:
      return render_exports(plan);
    case CommandLine::Format::task_prolog:
      return render_task_prolog(plan);
    case CommandLine::Format::table:
      break;
  }
  if (settings.verbose) return render_table(plan) + render_facts(planned.facts, settings);
  return plan.rank == 0 ? render_table(plan) : render_brief(plan);
}

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) == EOF || std::fflush(stdout) != 0) {
    throw LaunchError("cannot write to standard output: " + std::string(std::strerror(errno)));
  }
}

void set_variables(const Plan& plan, bool verbose) {
  for (const auto& entry : plan.entries) {
    if (entry.kept) continue;
    const int result = entry.removed ? unsetenv(entry.name.c_str())
                                     : setenv(entry.name.c_str(), entry.value.c_str(), 1);
    if (result != 0) throw LaunchError("cannot set " + entry.name + ": " + std::strerror(errno));
  }
  if (plan.rank == 0) std::fprintf(stderr, "ddp: %s\n", render_summary(plan).c_str());
  for (const auto& note : plan.own_notes()) std::fprintf(stderr, "ddp: note: %s\n", note.c_str());
  if (verbose) std::fprintf(stderr, "ddp: %s\n", render_task_line(plan).c_str());
}

// In a step of `srun --ddp=watch`, a task already has a guard.
bool is_guarded(const Planned& planned) {
  return planned.facts.step.launcher == Launcher::slurm &&
         from_process(variable::kGuarded) == planned.plan.step;
}

guard::GuardOptions guard_options(const Plan& plan, const Settings& settings) {
  const std::string launcher = read_kernel_file("/proc/" + std::to_string(getppid()) + "/comm");
  return {.rank = plan.rank,
          .task_count = plan.task_count,
          .local_rank = plan.local_rank,
          .local_task_count = plan.local_task_count,
          .is_agent = plan.mode == Mode::torchrun,
          .launcher_reaches_all =
              guard::reaches_all(trimmed(launcher), read_kernel_file("/proc/self/cgroup")),
          .stall = settings.stall_limit(),
          .ends_on_failure = settings.watch.value != Watch::report && !plan.tasks_may_leave,
          .ends_on_stall = settings.watch.value == Watch::end,
          .node = plan.node,
          .record_name = "ddp-guard-" + plan.step + "@" + plan.node};
}

// So that Python programs tell the guard where they stand.
void set_python_path() {
  constexpr const char* kName = "PYTHONPATH";
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto directory =
      program.parent_path().parent_path() / SLURM_DDP_DATA_INSTALLED / guard::kPythonDirectory;
  if (error || !std::filesystem::exists(directory, error)) return;
  const std::string path = from_process(kName).value_or("");
  setenv(kName, guard::with_python_directory(directory.native(), path).c_str(), 1);
}

// Returns in a child of this process, which then becomes the command; the process itself becomes
// its guard.
void put_guard_before_command(const Plan& plan, const Settings& settings) {
  guard::GuardOptions options = guard_options(plan, settings);
  FileDescriptor record;
  if (plan.local_rank == 0) record = guard::make_node_record(options.record_name);
  options.node_record = record.get();
  std::fflush(nullptr);
  if (auto task = guard::fork_task()) guard::guard_task(std::move(*task), options);
  setenv(variable::kGuarded, plan.step.c_str(), 1);
  set_python_path();
}

// Executes the command; if that fails, returns the exit status that shells use.
int become(std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
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
  if (!settings.is_on() && !explain) return become(line.command);
  if (line.verbose) settings.verbose = true;
  if (settings.explain == ExplainFormat::json) line.format = CommandLine::Format::json;
  const Planned planned = plan_this_task(settings, line.command);
  if (explain) {
    print(explanation(planned, settings, line.format));
    return 0;
  }
  set_variables(planned.plan, settings.verbose);
  const bool watch = line.watch || settings.watch.value != Watch::off;
  if (watch && !is_guarded(planned)) put_guard_before_command(planned.plan, settings);
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
