// S_CTX_REMOTE: on each node of a step. Facts of the node are gathered once, before the tasks are
// forked and before any container; each task then makes its own plan from them.
#include <unistd.h>

#include <string_view>

#include "spank_plugin/launch/error.h"
#include "spank_plugin/launch/host/node_facts.h"
#include "spank_plugin/launch/launcher_daemon.h"
#include "spank_plugin/launch/plan.h"
#include "spank_plugin/launch/render.h"
#include "spank_plugin/spank/contexts.h"
#include "spank_plugin/spank/log.h"
#include "spank_plugin/spank/task_environment.h"

namespace ddp::spank {
namespace {

namespace variable = launch::variable;

// Batch scripts, interactive shells and the job's external step are not tasks of a step; what is
// set there would leak into every step of the job.
bool is_ordinary_step(spank_t spank) {
  std::uint32_t step_id = SLURM_BATCH_SCRIPT;
  return spank_get_item(spank, S_JOB_STEPID, &step_id) == ESPANK_SUCCESS &&
         step_id <= SLURM_MAX_NORMAL_STEP_ID;
}

bool runs_launcher_daemons(spank_t spank) {
  int count = 0;
  char** arguments = nullptr;
  if (spank_get_item(spank, S_JOB_ARGV, &count, &arguments) != ESPANK_SUCCESS) return false;
  return count > 0 && arguments != nullptr && launch::is_launcher_daemon(arguments[0]);
}

void plan_step(PlannedStep& planned, std::string_view settings,
               const TaskEnvironment& environment) {
  if (settings.starts_with(kErrorMark)) {
    throw launch::LaunchError(std::string(settings.substr(kErrorMark.size())));
  }
  planned.settings = launch::decode_settings(settings);
  planned.step = launch::read_slurm_step(environment.lookup());
  const launch::Inherited inherited(environment.lookup(), planned.step.id);
  // Nodes of a step of several components cannot know here that they are alone.
  planned.node =
      gather_node_facts(planned.step, planned.settings, inherited, !planned.step.has_components);
}

// Returning an error would do only where plugstack.conf says "required", and starts the program
// otherwise. This process is the task's own, forked for it alone, so it ends itself.
[[noreturn]] void end_task(int status) {
  _exit(status);
}

// To the task's own standard output or error. Not by SLURM's log, which is also the node's: what a
// user asked to see is no business of the administrator's.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written <= 0) return;  // nobody reads
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void announce(const launch::Plan& plan, bool verbose) {
  std::string text;
  if (plan.rank == 0) {
    text += "ddp: " + render_summary(plan) + "\n";
    for (const auto& note : plan.notes) text += "ddp: note: " + note + "\n";
  }
  if (verbose) text += "ddp: " + render_task_line(plan) + "\n";
  write_all(STDERR_FILENO, text);
}

void explain(const launch::Plan& plan) {
  if (plan.rank == 0) return write_all(STDOUT_FILENO, render_table(plan));
  // srun passes lines on as they come: give the table of rank 0 a chance to come in one piece.
  constexpr useconds_t kTurn = 300'000;
  usleep(kTurn);
  write_all(STDOUT_FILENO, render_task_line(plan) + "\n");
}

launch::Plan plan_task(const PlannedStep& planned, const TaskEnvironment& environment) {
  const launch::EnvLookup lookup = environment.lookup();
  const launch::Inherited inherited(lookup, planned.step.id);
  const launch::TaskFacts task = launch::read_slurm_task(lookup, planned.step);
  launch::Plan plan = make_plan({planned.step, task, planned.node}, planned.settings, inherited);
  if (plan.rank == 0 && !planned.node.free_port) {
    require_free_master_port(plan, planned.settings, inherited);
  }
  return plan;
}

}  // namespace

void slurmstepd_user_init(PluginState& state, spank_t spank) {
  const TaskEnvironment environment(spank);
  const auto settings = environment.get(variable::kSettings);
  if (!settings || !is_ordinary_step(spank) || runs_launcher_daemons(spank)) return;
  state.planned.emplace();
  try {
    plan_step(*state.planned, *settings, environment);
  } catch (const std::exception& error) {
    state.planned->error = error.what();
  }
}

void slurmstepd_task_init(const PluginState& state, spank_t spank) {
  if (!state.planned) return;
  const PlannedStep& planned = *state.planned;
  const TaskEnvironment environment(spank);
  const bool first_on_node = environment.get("SLURM_LOCALID").value_or("0") == "0";
  if (!planned.error.empty()) {
    if (first_on_node) log_error(planned.error);  // the others would say the same
    end_task(1);
  }
  try {
    const launch::Plan plan = plan_task(planned, environment);
    if (planned.settings.explain) {
      explain(plan);
      end_task(0);
    }
    for (const auto& entry : plan.entries) {
      if (!entry.kept) environment.set(entry.name, entry.value);
    }
    announce(plan, planned.settings.verbose);
  } catch (const std::exception& error) {
    log_error(error.what());
    end_task(1);
  }
}

}  // namespace ddp::spank
