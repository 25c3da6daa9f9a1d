// SPDX-License-Identifier: Apache-2.0
// A fake SLURM, which loads the built plugin as SLURM would and answers its queries from a table.
// Tests use it to produce contexts, values and failures that are rare with a real SLURM.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fake_environment.h"
#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::launch {

struct FakeSlurm {
  spank_context_t context = S_CTX_REMOTE;
  std::uint32_t step_id = 0;
  std::uint32_t node_count = 2;
  std::string release_major;  // the headers' release, unless a test sets another
  std::string release_minor;
  Variables variables;       // of the step; srun's variables are those of the test process
  Variables task_variables;  // other plugins set these in each task before ours
  std::vector<std::string> command = {"python", "train.py"};
  std::vector<std::string> plugin_arguments;
  int getenv_result = ESPANK_SUCCESS;  // any other value is returned for every variable
  int setenv_result = ESPANK_SUCCESS;
  int item_result = ESPANK_SUCCESS;
  bool refuses_option = false;
  int lines = 1;             // number of lines in plugstack.conf that name the plugin
  std::string other_plugin;  // another library in plugstack.conf; empty for none
  bool other_plugin_is_later = false;
  std::vector<std::string> shown;  // variables of the process to print at the end: "has RANK=3"

  FakeSlurm();
};

// The actions of the plugin, run in a separate process.
struct Transcript {
  std::string
      text;  // "set RANK=2", "unset X", "error: ...", "log: ...", "init: 0", ... one per line
  bool ended_well = false;  // the process exited with status 0 or 1
  int status = 0;
};

// Calls init, the option's callback if `option` is not null, init_post_opt, in srun
// local_user_init, and in slurmstepd user_init and task_init, in SLURM's order.
// `failing_allocation` is the index, from 1, of the plugin's memory allocation that fails; 0 for
// none.
Transcript run_plugin(const FakeSlurm& slurm, const char* option = nullptr,
                      unsigned failing_allocation = 0);

}  // namespace ddp::launch
