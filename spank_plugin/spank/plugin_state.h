// SPDX-License-Identifier: Apache-2.0
// The plugin's state between callbacks. SPANK does not pass a pointer through its callbacks, so
// each process has one PluginState, in plugin.cpp; each context uses its own part.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "spank_plugin/fabric/site/site.h"
#include "spank_plugin/guard/guard_options.h"
#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/settings/spec.h"
#include "spank_plugin/launch/step/facts.h"

namespace ddp::spank {

// Prefix of a message that replaces the settings that srun passes to the nodes.
inline constexpr std::string_view kErrorMark = "error: ";

// What the guards of a step need on one of its nodes.
struct GuardFacts {
  FileDescriptor program;  // ddp-guard, opened outside of any container
  FileDescriptor record;   // guard::NodeRecord; none if the kernel refused
  std::string python;      // see guard::kPythonDirectory; empty if there is none
  launch::Watch watch = launch::Watch::on;
  std::chrono::seconds stall{};  // see guard::GuardOptions
  guard::HubPlace hub;
  bool slurmstepd_reaches_all = false;  // see guard::is_to_be_passed_on()
};

// A step that will become a distributed job, on one of its nodes.
struct PlannedStep {
  launch::Settings settings;
  launch::StepFacts step;
  launch::NodeFacts node;
  bool was_requested = true;  // the user requested it, not only the site's default
  std::string error;          // an error from before the tasks were forked, which they report
  // MASTER_ADDR and MASTER_PORT as the user left them. Container plugins set them in each task by
  // their own rules (enroot's hook for PyTorch images: one port per job), but --ddp must decide.
  std::map<std::string, std::optional<std::string>> rendezvous;
  std::optional<fabric::Site> site;  // read outside the container
  bool has_thread_count = false;     // OMP_NUM_THREADS was set before the tasks were forked
  std::optional<GuardFacts> guard;   // with --ddp=watch
};

// How often SLURM has called each entry point: once per line of plugstack.conf.
struct Calls {
  std::uint32_t init_post_opt = 0;
  std::uint32_t local_user_init = 0;
  std::uint32_t user_init = 0;
  std::uint32_t task_init = 0;
};

struct PluginState {
  std::uint32_t lines = 0;  // of plugstack.conf that name this library; only the first one counts
  Calls calls;
  std::string earlier_copy;  // the file of another copy that comes first, and does all the work
  launch::Settings site;     // built-in defaults and plugstack.conf
  std::vector<std::string> site_problems;    // wrong arguments in plugstack.conf
  std::string release_problem;               // empty if this is the SLURM release it was built for
  std::optional<launch::Spec> command_line;  // --ddp; the last one counts
  std::uint32_t components = 0;        // components of `srun a : b`, counted by srun's callbacks
  std::optional<PlannedStep> planned;  // in slurmstepd
};

}  // namespace ddp::spank
