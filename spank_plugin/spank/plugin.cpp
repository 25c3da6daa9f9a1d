// SPDX-License-Identifier: Apache-2.0
// The entry points that SLURM calls, and their dispatch to the contexts. They report failures only
// as return codes, because an exception would terminate srun, slurmstepd or the node's slurmd.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "spank_plugin/launch/step/environment.h"
#include "spank_plugin/spank/container_plugin.h"
#include "spank_plugin/spank/contexts.h"
#include "spank_plugin/spank/log.h"
#include "spank_plugin/spank/option.h"
#include "spank_plugin/spank/release.h"

extern "C" {
SPANK_PLUGIN(ddp, 1)
}

namespace ddp::spank {
namespace {

// SLURM ignores positive return codes in some callbacks, so a failure is always -1.
constexpr int kSuccess = 0;
constexpr int kFailure = -1;

PluginState& state() {
  static PluginState the_state;
  return the_state;
}

template <typename Callback>
int guarded(Callback callback) noexcept {
  try {
    callback();
    return kSuccess;
  } catch (const std::exception& error) {
    log_error(error.what());
  } catch (...) {
    log_error("unknown error");
  }
  return kFailure;
}

int option_callback(int /*value*/, const char* spec, int remote) noexcept {
  // Ignored on the nodes, which get the step's settings from srun: srun knows more than the option,
  // and on a node SLURM ignores an error here and calls twice.
  if (remote != 0) return kSuccess;
  return guarded([spec] { take_option(state(), spec); });
}

// plugstack.conf may name the plugin on two lines, or name two copies of it, for example directly
// and through an include. SLURM then calls each entry point once per line. Lines with the same file
// share one library and its state, so only the first of their calls counts; of two copies, only the
// one that comes first does any work.
bool is_of_first_line(std::uint32_t& calls) {
  return calls++ % std::max<std::uint32_t>(state().lines, 1) == 0 && state().earlier_copy.empty();
}

void note_second_line(std::string problem) {
  if (spank_context() == S_CTX_SLURMD) log_error(problem);
  state().site_problems.push_back(std::move(problem));
}

void init(spank_t spank, int count, char** arguments) {
  if (++state().lines > 1) {
    return note_second_line(
        "plugstack.conf names this plugin more than once; only the first line and its arguments "
        "count");
  }
  state().earlier_copy = find_earlier_copy();
  if (!state().earlier_copy.empty()) {
    return note_second_line("plugstack.conf names two copies of this plugin; only the first one, " +
                            state().earlier_copy + ", and its arguments count");
  }
  const std::vector<std::string_view> site(arguments, arguments + count);
  state().site_problems = apply_site_arguments(state().site, site);
  state().release_problem = find_release_problem(spank);
  switch (spank_context()) {
    case S_CTX_LOCAL:
      srun_before_options();
      return register_option(spank, option_callback);
    case S_CTX_ALLOCATOR:
    case S_CTX_REMOTE:
      return register_option(spank, option_callback);
    case S_CTX_SLURMD:
      return slurmd_init(state());
    default:
      return;  // nothing to do in prolog and epilog
  }
}

// The first copy has already decided whether this step is planned.
void report_second_copy() {
  const bool is_planned =
      spank_context() == S_CTX_LOCAL && std::getenv(launch::variable::kSettings) != nullptr;
  if (!is_planned || state().earlier_copy.empty()) return;
  for (const auto& problem : state().site_problems) log_error(problem);
}

void after_options() {
  switch (spank_context()) {
    case S_CTX_LOCAL:
      return srun_after_options(state());
    case S_CTX_ALLOCATOR:
      return allocator_after_options(state());
    default:
      return;  // in slurmstepd no fact is known yet, and an error would drain the node
  }
}

}  // namespace
}  // namespace ddp::spank

using ddp::spank::guarded;
using ddp::spank::is_of_first_line;
using ddp::spank::kSuccess;
using ddp::spank::state;

extern "C" {

int slurm_spank_init(spank_t spank, int count, char* arguments[]) {
  const int result = guarded([=] { ddp::spank::init(spank, count, arguments); });
  // In slurmstepd, slurmd, prolog and epilog a failure would take the node out of service.
  const bool is_command = spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR;
  return is_command ? result : kSuccess;
}

int slurm_spank_init_post_opt(spank_t /*spank*/, int /*count*/, char* /*arguments*/[]) {
  if (!is_of_first_line(state().calls.init_post_opt)) {
    return guarded([] { ddp::spank::report_second_copy(); });
  }
  return guarded([] { ddp::spank::after_options(); });
}

int slurm_spank_local_user_init(spank_t spank, int /*count*/, char* /*arguments*/[]) {
  if (!is_of_first_line(state().calls.local_user_init)) return kSuccess;
  guarded([=] { ddp::spank::srun_before_launch(state(), spank); });
  return kSuccess;
}

int slurm_spank_user_init(spank_t spank, int /*count*/, char* /*arguments*/[]) {
  if (!is_of_first_line(state().calls.user_init)) return kSuccess;
  guarded([=] { ddp::spank::slurmstepd_user_init(state(), spank); });
  return kSuccess;  // the tasks report the error; an error here would drain the node
}

int slurm_spank_task_init(spank_t spank, int /*count*/, char* /*arguments*/[]) {
  if (!is_of_first_line(state().calls.task_init)) return kSuccess;
  return guarded([=] { ddp::spank::slurmstepd_task_init(state(), spank); });
}

}  // extern "C"
