# SPDX-License-Identifier: Apache-2.0
# The key of a step on a real SLURM: the processes that have it, and a check whose tasks
# authenticate each other with it, or with MUNGE without the plugin. See docs/security.md.

bats_require_minimum_version 1.5.0
load common

setup_file() { cluster_up 2; }
teardown_file() { cluster_down; }
setup() {
  cd "$work" || return
  rm -rf ./*
}

# shellcheck disable=SC2016  # expanded by the tasks
key='echo "key=$SLURM_DDP_STEP_KEY"'

keys() { grep -o 'key=.*' <<< "$output" | sort -u; }

@test "each step has its own key, the same in all its tasks, and it is not shown" {
  run -0 --separate-stderr srun --ddp=verbose -N2 -n4 bash -c "$key"
  [ "$(keys | wc -l)" -eq 1 ]
  [[ $(keys) =~ ^key=[0-9]+\.[0-9]+:[0-9a-f]{64}$ ]]
  local first digits
  first=$(keys)
  digits=${first##*:}
  [[ $stderr != *"$digits"* ]]
  run ! grep -rq "$digits" "$state/log"
  run -0 srun --ddp -N2 -n2 bash -c "$key"
  [ "$(keys)" != "$first" ]
  run -0 srun -N2 -n2 bash -c "$key"
  [ "$(keys)" = key= ]
  run -0 srun --ddp=explain,verbose -N1 -n1 true
  [[ $output != *STEP_KEY* ]]
}

@test "a step inside a step does not have the key of the outer step" {
  run -0 srun --ddp -N1 -n1 bash -c "$key; srun --overlap -N1 -n1 bash -c '$key'; srun --ddp --overlap -N1 -n1 bash -c '$key'"
  [ "$(keys | wc -l)" -eq 3 ]
  [ "$(keys | head -n 1)" = key= ]
}

# checked ARGS...: runs the check of two nodes, with its options after srun's, and expects OK.
checked() { run -0 timeout 120 srun "$@"; [[ $output == *"ddp-check net OK - 2 nodes, 2 tasks"* ]] || { echo "$output"; false; }; }

@test "the tasks of a check authenticate each other with the plugin's key" {
  checked --ddp -N2 -n2 ddp-check net --no-mpi --mib 1 --key plugin
}

@test "without the plugin, the tasks authenticate each other with MUNGE" {
  export SLURM_DDP_MUNGE_SOCKET=$state/munge/munge.socket
  checked -N2 -n2 ddp-check net --no-mpi --mib 1 --key munge
  checked -N2 -n2 ddp-check net --no-mpi --mib 1 # also by default
  [[ $output != *"no key for this step"* ]]
}

@test "without plugin and MUNGE, the check warns and does not drain" {
  export SLURM_DDP_MUNGE_SOCKET=/nowhere
  checked -N2 -n2 ddp-check net --no-mpi --mib 1
  [ "$(grep -c 'no key for this step' <<< "$output")" -eq 1 ]
  run -3 timeout 60 srun -N2 -n2 ddp-check net --no-mpi --act
  [[ $output == *"without a key the tasks of this step cannot be authenticated"* ]]
}
