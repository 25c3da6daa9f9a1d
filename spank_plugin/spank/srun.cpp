// SPDX-License-Identifier: Apache-2.0
// S_CTX_LOCAL: srun, which makes the decisions for the whole step, once, before it starts.
#include <algorithm>
#include <cstdlib>

#include "base/errors.h"
#include "base/text_file.h"
#include "spank_plugin/launch/host/node_address_query.h"
#include "spank_plugin/launch/host/switch_query.h"
#include "spank_plugin/launch/plan/giver.h"
#include "spank_plugin/launch/step/environment.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/hostfile.h"
#include "spank_plugin/launch/step/marker.h"
#include "spank_plugin/spank/command_line.h"
#include "spank_plugin/spank/container_plugin.h"
#include "spank_plugin/spank/contexts.h"
#include "spank_plugin/spank/enclosing_step.h"
#include "spank_plugin/spank/log.h"
#include "spank_plugin/spank/option.h"
#include "spank_plugin/spank/pmix_fence.h"
#include "spank_plugin/spank/step_key.h"

namespace ddp::spank {
namespace {

namespace variable = launch::variable;

// Passes a value to the nodes by setenv, which affects the tasks of all components.
void tell_nodes(const char* name, const std::string& value) {
  if (setenv(name, value.c_str(), 1) == 0) return;
  throw launch::LaunchError(std::string("cannot set ") + name);
}

// Removes inherited variables: an srun inside a task inherits those that the outer srun passed to
// its own nodes.
void forget_outer_step() {
  unsetenv(variable::kSettings);
  unsetenv(variable::kRankZeroHost);
  unsetenv(variable::kComponents);
  unsetenv(variable::kSwitchMap);
  unsetenv(variable::kNodeAddresses);
}

// Tasks never see the order of the hostfile, because SLURM sorts the node list that they get. An
// unreadable file is ignored here; srun itself reports it if it matters.
void tell_rank_zero_host() {
  constexpr std::size_t kMaxHostfile = 1U << 20U;
  const char* path = std::getenv("SLURM_HOSTFILE");
  const auto text = path == nullptr ? std::nullopt : read_text(path, kMaxHostfile);
  if (!text) return;
  try {
    const auto host = launch::first_host_of_hostfile(*text);
    if (host) tell_nodes(variable::kRankZeroHost, *host);
  } catch (const UsageError&) {  // the line is not a node list, so rank 0's host stays unknown
  }
}

// Queries the controller, which is acceptable only here, once for the whole step. If it does not
// answer or does not know any switches, the tasks report the consequences.
void tell_switches() {
  const std::string map = launch::query_switch_map();
  if (!map.empty()) tell_nodes(variable::kSwitchMap, map);
}

// A site's setting must not fail a step: without a map the tasks keep SLURM's order.
void tell_switches_for(const launch::Chosen<launch::Order>& order) {
  if (order.value != launch::Order::by_switch) return;
  try {
    tell_switches();
  } catch (const UsageError& error) {
    if (order.origin != launch::Origin::site) throw;
    log_line(error.what());
  }
}

// True if an enclosing step of the same job set the number of tasks per node for its tasks.
bool is_told_tasks_per_node() {
  const char* text = std::getenv(variable::kMarker);
  const char* job = std::getenv("SLURM_JOB_ID");
  const auto marker = text == nullptr ? std::nullopt : launch::parse_marker(text);
  if (!marker || job == nullptr || !marker->step.starts_with(std::string(job) + ".")) return false;
  return std::any_of(marker->variables.begin(), marker->variables.end(),
                     [](const auto& marked) { return marked.name == variable::kTasksPerNode; });
}

// scontrol asks this cluster's slurmctld, which may have other nodes of the same names. It reads
// SLURM_CLUSTERS itself, like srun.
bool is_for_another_cluster() noexcept {
  return has_own_option({"-M", "--cluster"});
}

}  // namespace

void srun_before_options() {
  // srun would read this fact about the outer step as an option for the inner one.
  if (is_told_tasks_per_node()) unsetenv(variable::kTasksPerNode);
}

void srun_after_options(PluginState& state) {
  ++state.components;
  forget_outer_step();
  if (state.components == 1) forget_outer_step_key();
  try {
    const launch::Settings settings = resolve_settings(state);
    // Otherwise all tasks of a step without a plan would have the rank and the GPU of this one.
    if (!settings.is_on()) return forget_enclosing_plan();
    if (!state.release_problem.empty()) throw launch::LaunchError(state.release_problem);
    if (state.components == 1) {
      for (const auto& problem : state.site_problems) log_error(problem);
      const std::string problem = wants_container() ? find_order_problem() : "";
      if (!problem.empty()) log_error(problem);
    }
    tell_rank_zero_host();
    tell_switches_for(settings.order);
    tell_nodes(variable::kComponents, std::to_string(state.components));
    tell_nodes(variable::kSettings, encode_settings(settings));
    draw_step_key();
    ask_for_fence_that_waits();
  } catch (const UsageError& error) {
    // If plugstack.conf says "optional", SLURM starts the step even if this plugin returns an
    // error. The tasks then exit with this message instead of running without the requested
    // settings.
    tell_nodes(variable::kSettings, std::string(kErrorMark) + error.what());
    throw;
  }
}

// Asks for the nodes' addresses, once for the whole step, because a name may lead elsewhere on a
// node although it leads to its node here. Whatever goes wrong, the nodes continue with the names,
// and report those that they cannot use. SLURM tells srun the nodes of the step, or of the job if
// that is older than the step.
void srun_before_launch(const PluginState& state, spank_t spank) {
  const launch::EnvLookup environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
  const auto settings = environment(variable::kSettings);
  auto nodes = environment("SLURM_NODELIST");
  if (!nodes) nodes = environment("SLURM_JOB_NODELIST");
  std::uint32_t count = 0;
  if (state.components != 1 || !settings || !nodes || is_for_another_cluster()) return;
  if (spank_get_item(spank, S_JOB_NNODES, &count) != ESPANK_SUCCESS || count < 2) return;
  try {
    const auto& given = launch::decode_settings(*settings).master_addr;
    const launch::Inherited inherited(environment, "");
    if (giver_of("MASTER_ADDR", given, inherited) != launch::Giver::none) return;
    const std::string addresses = launch::query_node_addresses(*nodes);
    if (!addresses.empty()) tell_nodes(variable::kNodeAddresses, addresses);
  } catch (const UsageError&) {  // the tasks report it
  }
}

}  // namespace ddp::spank
