#pragma once
// A SLURM that is only functions: loads the built plugin as SLURM would and answers its questions
// from a table, so that tests can give it contexts, values and failures that a real SLURM seldom
// has.

#include <cstdint>
#include <string>
#include <vector>

#include "fake_environment.h"
#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::launch {

struct FakeSlurm {
  spank_context_t context = S_CTX_REMOTE;
  std::uint32_t step_id = 0;
  std::string release_major;  // that of the headers, unless a test says otherwise
  std::string release_minor;
  Variables variables;       // of the step; the tests' own process environment is srun's
  Variables task_variables;  // what other plugins put over them in each task, before ours
  std::vector<std::string> command = {"python", "train.py"};
  std::vector<std::string> plugin_arguments;
  int getenv_result = ESPANK_SUCCESS;  // anything else: for every variable
  int setenv_result = ESPANK_SUCCESS;
  int item_result = ESPANK_SUCCESS;
  bool refuses_option = false;
  std::string other_plugin;  // a library that plugstack.conf names, too; empty: none
  bool other_plugin_is_later = false;
  std::vector<std::string> shown;  // variables of the process to show at the end: "has RANK=3"

  FakeSlurm();
};

// What the plugin did in a process of its own.
struct Transcript {
  std::string
      text;  // "set RANK=2", "unset X", "error: ...", "log: ...", "init: 0", ... a line each
  bool ended_well = false;  // by itself, with status 0 or 1
  int status = 0;
};

// Calls init, the option's callback if `option` is not null, init_post_opt, and in slurmstepd
// user_init and task_init, in SLURM's order. `failing_allocation`: the how-many-th memory
// allocation of the plugin fails; 0 none.
Transcript run_plugin(const FakeSlurm& slurm, const char* option = nullptr,
                      unsigned failing_allocation = 0);

}  // namespace ddp::launch
