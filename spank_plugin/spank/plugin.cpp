// SPDX-License-Identifier: Apache-2.0
// The entry points that SLURM calls, and their dispatch to the contexts. They report failures only
// as return codes, because an exception would terminate srun, slurmstepd or the node's slurmd.
#include <exception>
#include <string_view>
#include <vector>

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

void init(spank_t spank, int count, char** arguments) {
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
using ddp::spank::kSuccess;

extern "C" {

int slurm_spank_init(spank_t spank, int count, char* arguments[]) {
  const int result = guarded([=] { ddp::spank::init(spank, count, arguments); });
  // In slurmstepd, slurmd, prolog and epilog a failure would take the node out of service.
  const bool is_command = spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR;
  return is_command ? result : kSuccess;
}

int slurm_spank_init_post_opt(spank_t /*spank*/, int /*count*/, char* /*arguments*/[]) {
  return guarded([] { ddp::spank::after_options(); });
}

int slurm_spank_user_init(spank_t spank, int /*count*/, char* /*arguments*/[]) {
  guarded([=] { ddp::spank::slurmstepd_user_init(ddp::spank::state(), spank); });
  return kSuccess;  // the tasks report the error; an error here would drain the node
}

int slurm_spank_task_init(spank_t spank, int /*count*/, char* /*arguments*/[]) {
  return guarded([=] { ddp::spank::slurmstepd_task_init(ddp::spank::state(), spank); });
}

}  // extern "C"
