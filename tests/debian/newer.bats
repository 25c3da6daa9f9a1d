#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What Debian 12's SLURM 22.05 does not have: the manager of steps on a node of the job, asynchronous steps, blocks of nodes.

bats_require_minimum_version 1.5.0
load ../cluster/common

setup_file() {
  make_extra
  printf '%s\n' SlurmctldParameters=enable_stepmgr PrologFlags=contain TopologyPlugin=topology/block > "$extra/slurm.conf"
  printf '%s\n' 'BlockName=b1 Nodes=node[1,3]' 'BlockName=b2 Nodes=node[2,4]' BlockSizes=2 > "$extra/topology.conf"
  cluster_up 4 --mpi-default none --cpus-per-node 2 --slurm-conf-extra "$extra"
}
teardown_file() { cluster_down; }

setup() {
  cd "$work"
  rm -rf ./*
  empty_records
}
teardown() { end_all_jobs; }

two_steps_of_two_ranks() {
  [ "$(cat "$RECORDS"/* | grep -c '^WORLD_SIZE=2')" -eq 4 ]
  [ "$(cat "$RECORDS"/* | grep '^MASTER_PORT=' | sort -u | wc -l)" -eq 2 ]
}

@test "stepmgr: two steps at once" {
  # shellcheck disable=SC2016  # for the job
  printf '%s\n' '#!/bin/bash' 'scontrol show job $SLURM_JOB_ID | grep StepMgr' \
    'srun --ddp -N2 -n2 --exact record-task & srun --ddp -N2 -n2 --exact record-task & wait' > job
  run_job --stepmgr -N2 -n4 -o log job
  grep 'StepMgrEnabled=Yes' log
  two_steps_of_two_ranks
}

@test "srun --async: two steps at once" {
  [[ $(srun --help) == *--async* ]] || skip "this SLURM has no srun --async"
  # shellcheck disable=SC2016
  printf '%s\n' '#!/bin/bash' 'srun --async --ddp -N2 -n2 --exact record-task' 'srun --async --ddp -N2 -n2 --exact record-task' \
    'swait $SLURM_JOB_ID' > job
  run_job --stepmgr -N2 -n4 -o log job
  cat log
  two_steps_of_two_ranks
}

@test "order=switch follows the blocks, and a segment is in one" {
  srun --ddp=order=switch -N4 -n4 record-task
  check-records "$RECORDS" 4
  [ "$(for rank in 0 1 2 3; do recorded $rank SLURMD_NODENAME; done | paste -sd' ')" = "node1 node3 node2 node4" ]
  empty_records
  srun --segment=2 --ddp=order=switch -N2 -n2 record-task
  check-records "$RECORDS" 2
  [[ $(all_recorded SLURMD_NODENAME) == "node1 node3" || $(all_recorded SLURMD_NODENAME) == "node2 node4" ]]
}
