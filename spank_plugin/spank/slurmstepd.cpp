// SPDX-License-Identifier: Apache-2.0
// S_CTX_REMOTE: slurmstepd on each node of a step. It gathers the node's facts once, before the
// tasks are forked and before any container starts. Each task then makes its own plan from them.
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <vector>

#include "spank_plugin/guard/python_path.h"
#include "spank_plugin/launch/host/cpu_mask.h"
#include "spank_plugin/launch/host/fabric_facts.h"
#include "spank_plugin/launch/host/gpu_devices.h"
#include "spank_plugin/launch/host/node_facts.h"
#include "spank_plugin/launch/plan/master_port.h"
#include "spank_plugin/launch/plan/plan.h"
#include "spank_plugin/launch/plan/render.h"
#include "spank_plugin/launch/plan/torchrun_variables.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/launcher_daemon.h"
#include "spank_plugin/launch/step/step_command.h"
#include "spank_plugin/spank/contexts.h"
#include "spank_plugin/spank/log.h"
#include "spank_plugin/spank/pmix_fence.h"
#include "spank_plugin/spank/step_key.h"
#include "spank_plugin/spank/task_environment.h"
#include "spank_plugin/spank/task_guard.h"

namespace ddp::spank {
namespace {

namespace variable = launch::variable;

// False for batch scripts, interactive shells and the job's external step: variables set there
// would leak into every step of the job.
bool is_ordinary_step(spank_t spank) {
  std::uint32_t step_id = SLURM_BATCH_SCRIPT;
  return spank_get_item(spank, S_JOB_STEPID, &step_id) == ESPANK_SUCCESS &&
         step_id <= SLURM_MAX_NORMAL_STEP_ID;
}

// Returns the command of the tasks; empty if SLURM does not report it.
std::vector<std::string_view> command_of(spank_t spank) {
  int count = 0;
  char** arguments = nullptr;
  if (spank_get_item(spank, S_JOB_ARGV, &count, &arguments) != ESPANK_SUCCESS) return {};
  if (count <= 0 || arguments == nullptr) return {};
  return {arguments, arguments + count};
}

void plan_step(PlannedStep& planned, std::string_view settings, const TaskEnvironment& environment,
               const std::vector<std::string_view>& command) {
  if (settings.starts_with(kErrorMark)) {
    throw launch::LaunchError(std::string(settings.substr(kErrorMark.size())));
  }
  planned.settings = launch::decode_settings(settings);
  planned.was_requested = planned.settings.is_requested();
  planned.step = launch::read_slurm_step(environment.lookup());
  planned.step.command = launch::read_step_command(command);
  // An error is the same in all tasks, so it is reported for the node.
  static_cast<void>(launch::choose_mode(planned.step, planned.settings));
  const launch::Inherited inherited(environment.lookup(), planned.step.id);
  // In a step of several components a node cannot know here whether it is the only one.
  planned.node =
      gather_node_facts(planned.step, planned.settings, inherited, !planned.step.has_components);
  planned.node.gpus = launch::read_gpu_lists(environment.lookup());
  planned.node.gpu_numbers = launch::read_gpu_numbers(environment.lookup());
  for (const auto* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    planned.rendezvous[name] = environment.get(name);
  }
  if (planned.settings.fabric.value != "off") {
    planned.site = fabric::read_site("/", fabric::SiteOwner::root);
  }
  planned.has_thread_count = environment.get("OMP_NUM_THREADS").has_value();
  if (planned.settings.watch.value != launch::Watch::off) {
    planned.guard = prepare_guard(
        planned.settings,
        {planned.node.leader_addresses, launch::watch_ports(planned.step, planned.settings)},
        step_key_digits(environment));
  }
}

// enroot's hook for PyTorch images sets OMP_NUM_THREADS=1 in every step with more tasks than nodes.
// That value is neither the user's choice nor the image's.
bool is_thread_count_of_hook(const PlannedStep& planned, const launch::EnvLookup& task) {
  return !planned.has_thread_count && task("OMP_NUM_THREADS") == "1" &&
         task("PYTORCH_VERSION").has_value();
}

// Looks up the task's environment, with the user's own values of MASTER_ADDR and MASTER_PORT.
launch::EnvLookup lookup_for_task(const PlannedStep& planned, const TaskEnvironment& environment) {
  return [&planned, lookup = environment.lookup()](const std::string& name) {
    if (name == "OMP_NUM_THREADS" && is_thread_count_of_hook(planned, lookup)) {
      return std::optional<std::string>();
    }
    const auto found = planned.rendezvous.find(name);
    return found == planned.rendezvous.end() ? lookup(name) : found->second;
  };
}

// Exits the process, which was forked for this task alone. Returning an error would suffice only if
// plugstack.conf says "required"; otherwise SLURM would start the program anyway.
[[noreturn]] void end_task(int status) {
  _exit(status);
}

// From 26.05 on, SLURM does not name the node.
void log_error_of_node(const TaskEnvironment& environment, const std::string& what) noexcept {
  try {
    const auto node = environment.get("SLURMD_NODENAME");
    log_error(node ? *node + ": " + what : what);
  } catch (const std::exception&) {  // out of memory
    log_error(what);
  }
}

// If the user requested a plan, reports an error and ends the task, so that the program does not
// run without a plan. Otherwise only prints a note.
void fail(const PlannedStep& planned, const TaskEnvironment& environment, const std::string& what) {
  if (!planned.was_requested) return log_line("no variable is set, because " + what);
  log_error_of_node(environment, what);
  end_task(1);
}

// Only one task of the node reports the error, because all would report the same.
void fail_on_node(const PlannedStep& planned, const TaskEnvironment& environment) {
  if (environment.get("SLURM_LOCALID").value_or("0") == "0") {
    return fail(planned, environment, planned.error);
  }
  if (planned.was_requested) end_task(1);
}

// Writes to the task's own standard output or error. SLURM's log functions would also write to the
// node's log, where output that a user requested does not belong.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // no reader
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Prints nothing for a step that is planned only because of the site's default, since its user
// requested nothing.
void announce(const launch::Plan& plan, bool was_requested, bool verbose) {
  if (!was_requested && !verbose) return;
  std::string text;
  if (plan.rank == 0) text += "ddp: " + render_summary(plan) + "\n";
  for (const auto& note : plan.own_notes()) text += "ddp: note: " + note + "\n";
  if (verbose) text += "ddp: " + render_task_line(plan) + "\n";
  write_all(STDERR_FILENO, text);
}

void explain(const launch::Plan& plan, const launch::Facts& facts,
             const launch::Settings& settings) {
  std::string text;
  const bool is_whole = plan.rank == 0 || settings.verbose;
  if (settings.explain == launch::ExplainFormat::json) {
    // srun splits and mixes lines of over 1 KiB from several tasks, so users of all JSON plans need
    // one output file per task.
    if (is_whole) text = render_json(plan) + "\n";
  } else if (is_whole) {
    text = render_table(plan) + (settings.verbose ? render_facts(facts, settings) : "");
  } else {
    text = render_brief(plan);
  }
  // srun forwards lines as they arrive, so wait to let the table of rank 0 arrive in one piece.
  constexpr useconds_t kTurn = 300'000;
  if (plan.rank != 0) usleep(kTurn);
  write_all(STDOUT_FILENO, text);
}

launch::Facts facts_of_task(const PlannedStep& planned, const launch::EnvLookup& lookup) {
  launch::Facts facts{planned.step, launch::read_slurm_task(lookup, planned.step), planned.node};
  facts.task.cpus = launch::read_cpu_mask();
  if (planned.settings.gpus.value == launch::GpuPolicy::shared) {
    facts.task.hides_gpu_devices = launch::hides_gpu_devices();
  }
  return facts;
}

void set_variables(const launch::Plan& plan, const TaskEnvironment& environment) {
  for (const auto& entry : plan.entries) {
    if (entry.removed) {
      environment.remove(entry.name);
    } else if (!entry.kept) {
      environment.set(entry.name, entry.value);
    }
  }
}

// So that Python programs tell the guard where they stand.
void set_python_path(const std::string& directory, const TaskEnvironment& environment) {
  constexpr const char* kName = "PYTHONPATH";
  if (directory.empty()) return;
  const std::string path = environment.get(kName).value_or("");
  environment.set(kName, guard::with_python_directory(directory, path));
}

void start_planned(const PlannedStep& planned, const TaskEnvironment& environment) {
  const launch::EnvLookup lookup = lookup_for_task(planned, environment);
  const launch::Inherited inherited(lookup, planned.step.id);
  launch::Facts facts = facts_of_task(planned, lookup);
  facts.fabric = find_fabric_part(facts, planned.settings, lookup, inherited, planned.site);
  launch::Plan plan = make_plan(facts, planned.settings, inherited);
  check_planned_ports(plan, facts, planned.settings, inherited);
  if (planned.settings.explain) {
    explain(plan, facts, planned.settings);
    end_task(0);
  }
  set_variables(plan, environment);
  announce(plan, planned.was_requested, planned.settings.verbose);
  if (planned.guard && put_guard_before_task(*planned.guard, plan)) {
    environment.set(variable::kGuarded, plan.step);
    set_python_path(planned.guard->python, environment);
  }
}

}  // namespace

void slurmstepd_user_init(PluginState& state, spank_t spank) {
  const TaskEnvironment environment(spank);
  const auto settings = environment.get(variable::kSettings);
  if (!settings || !is_ordinary_step(spank)) return;
  const auto command = command_of(spank);
  if (!command.empty() && launch::is_launcher_daemon(command.front())) return;
  state.planned.emplace();
  try {
    if (!state.release_problem.empty()) throw launch::LaunchError(state.release_problem);
    plan_step(*state.planned, *settings, environment, command);
  } catch (const std::exception& error) {
    state.planned->error = error.what();
  }
}

void slurmstepd_task_init(const PluginState& state, spank_t spank) {
  if (!state.planned) return;
  const PlannedStep& planned = *state.planned;
  const TaskEnvironment environment(spank);
  if (!planned.error.empty()) return fail_on_node(planned, environment);
  try {
    keep_fence_from_task(environment);
    name_step_of_key(environment, planned.step.id);
    start_planned(planned, environment);
  } catch (const std::exception& error) {
    fail(planned, environment, error.what());
  }
}

}  // namespace ddp::spank
