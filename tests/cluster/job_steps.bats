#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The options of srun in the job scripts: all CPUs of a task, all tasks of a job, and PMIx if the site
# did not choose a kind of MPI. The programs are stand-ins that record their settings.

bats_require_minimum_version 1.5.0
load common

setup_file() {
  [ "$(env -u OMP_NUM_THREADS nproc)" -ge 2 ] || return 0  # setup skips the tests
  local extra=$BATS_FILE_TMPDIR/extra
  printf '%s\n' TaskPlugin=task/affinity TaskPluginParam=cores > "$extra"
  cluster_up 2 --mpi-default none --cpus-per-node 2 --slurm-conf-extra "$extra"
  stand_in ddp-train 'echo "$(basename "$RUN_DIR") $(env -u OMP_NUM_THREADS nproc) ${SLURM_MPI_TYPE:-nothing}" >> '"$work/given"
  stand_in ddp-check 'exit 0'
  stand_in ddp-report 'exit 0'
}
teardown_file() { [ -z "${work:-}" ] || cluster_down; }

setup() {
  [ -n "${work:-}" ] || skip "needs two CPUs to distinguish one from two"
  cd "$work"
  rm -f given
  export PATH=$work/bin:$PATH # before the build's directory
  scripts=$project_root/jobscripts
}

stand_in() { # name, shell code
  mkdir -p "$work/bin"
  printf '#!/bin/bash\n%s\n' "$2" > "$work/bin/$1"
  chmod 755 "$work/bin/$1"
}

# Submits one script; the stand-in records its name.
submit() { # script
  RUN_DIR=$work/$1 REPEATS=1 RANKS=1 run_job -N1 --ntasks-per-node=1 -c2 -o log "$scripts/$1.sbatch" || { cat log; false; }
}

@test "sbatch -c 2: each rank has two CPUs and is started with PMIx, if there is one" {
  local script manager=nothing
  ! has_pmix || manager=pmix
  for script in train resume preemptible scaling_sweep checked_train; do submit $script; done
  cat given
  [ "$(sort given)" = "$(printf "%s 2 $manager\n" checked_train preemptible resume scaling_sweep train)" ]
}

@test "the user's or the site's choice of MPI is kept" {
  SLURM_MPI_TYPE=pmi2 submit train
  "$cluster" up 2 --mpi-default pmi2 --cpus-per-node 2 --slurm-conf-extra "$BATS_FILE_TMPDIR/extra" 2>&1 </dev/null
  submit resume
  cat given
  [ "$(sort given)" = "$(printf '%s\n' 'resume 2 pmi2' 'train 2 pmi2')" ]
}

@test "checked_train.sbatch does not train on a single bad node, or on one node if two are required" {
  stand_in ddp-check '[ "$1" = node ] && echo node1 > "${@: -1}"; exit 2'
  RUN_DIR=$work/bad run ! run_job -N1 -w node1 -o log "$scripts/checked_train.sbatch"
  grep -F 'too few good nodes (bad: node1); not training' log
  stand_in ddp-check ': > "${@: -1}"'
  WANT_NODES=2 RUN_DIR=$work/few run ! run_job -N1 -o log "$scripts/checked_train.sbatch"
  grep -F 'WANT_NODES is 2, and the job has 1; request more with -N' log
  [ ! -e given ]
}

# ranks_with ARGUMENTS OF SBATCH...: the number of checks of the network, of ranks, and of nodes that
# they run on. GOOD has the nodes that the check accepts.
ranks_with() {
  rm -rf given checked all
  # shellcheck disable=SC2016 # the stand-in's own variables
  stand_in ddp-check '[ "$1" = net ] || { : > "${@: -1}"; exit 0; }
    echo "$SLURM_PROCID" >> '"$work"'/checked
    [ "$SLURM_PROCID" -ne 0 ] || echo "$GOOD" > "$RUN_DIR/checks/good_hostlist.txt"'
  # shellcheck disable=SC2016
  stand_in ddp-train 'echo "$SLURMD_NODENAME" >> '"$work"'/given'
  RUN_DIR=$work/all run_job -o log "$@" "$scripts/checked_train.sbatch" || { cat log; false; }
  echo "$(wc -l < checked) $(wc -l < given) $(sort -u given | wc -l)"
}

@test "checked_train.sbatch checks once on each node, and trains with all tasks of the good ones" {
  export GOOD='node[1-2]'
  [ "$(ranks_with -N2)" = "2 2 2" ]
  [ "$(ranks_with -N2 -n4)" = "2 4 2" ]
  [ "$(ranks_with -N2 -n4 --ntasks-per-node=2)" = "2 4 2" ]
  [ "$(ranks_with -N2 --ntasks-per-node=2)" = "2 4 2" ]
  [ "$(ranks_with -N2 -n3)" = "2 3 2" ]
  GOOD=node2
  [ "$(ranks_with -N2 -n4)" = "2 2 1" ]
  [ "$(ranks_with -N2)" = "2 1 1" ]
  [ "$(ranks_with -N2 --exclusive)" = "2 1 1" ]
}

@test "all job scripts contain the same lines for srun, so that each can be copied alone" {
  local script
  for script in "$scripts"/*.sbatch; do
    sed -n '/^# srun does not do the following/,/^fi$/p' "$script" > lines
    grep -q SLURM_MPI_TYPE=pmix lines
    sha256sum < lines
  done | sort | uniq -c > sums
  cat sums
  [ "$(awk '{ print $1 }' sums)" = 6 ]
}
