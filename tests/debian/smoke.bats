#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a user does first, on another release of Debian and of SLURM. The rest is tested on Debian 12.

bats_require_minimum_version 1.5.0
load ../cluster/common

setup_file() { cluster_up 2 --mpi-default none; }
teardown_file() { cluster_down; }
setup() {
  cd "$work"
  rm -rf ./*
  empty_records
}

@test "srun --ddp gives each task the variables of its rank" {
  srun --ddp -N2 -n4 record-task
  check-records "$RECORDS" 4
  run -0 srun --ddp=explain -N2 -n4 record-task
  [[ $output == *MASTER_ADDR=node1* ]]
}

@test "#SBATCH --ddp, and two steps at once" {
  printf '%s\n' '#!/bin/bash' '#SBATCH --ddp' 'srun -n2 --exact record-task & srun -n2 --exact record-task & wait' > job
  run_job -N2 -n4 -o log job
  [ "$(cat "$RECORDS"/* | grep -c '^WORLD_SIZE=2')" -eq 4 ]
  [ "$(cat "$RECORDS"/* | grep '^MASTER_PORT=' | sort -u | wc -l)" -eq 2 ]
}

@test "ddp-launch makes the same plan without the plugin, in steps, batch scripts and interactive shells" {
  srun -N2 -n4 ddp-launch -- record-task
  check-records "$RECORDS" 4
  run -0 salloc -Q -n1 bash -c 'ddp-launch -- bash -c "echo of \$WORLD_SIZE"'
  [[ $output == *"of 1"* ]]
  printf '%s\n' '#!/bin/bash' 'ddp-launch -- bash -c "echo of \$WORLD_SIZE"' > job
  run_job -n1 -o log job
  [[ $(cat log) == *"of 1"* ]]
}

@test "ddp-check net passes over TCP, and over MPI where SLURM has PMIx" {
  # A busy machine may deserve a WARNING.
  run srun --ddp -N2 --ntasks-per-node=1 ddp-check net --mib 1
  [[ $status -le 1 && $output == *"allreduce_busbw_GBps="* ]]
  need_pmix
  run srun --mpi=pmix --ddp -N2 --ntasks-per-node=1 ddp-check net --mib 1
  [[ $status -le 1 && $output == *"mpi_GBps="* ]]
}

@test "ddp-ckpt writes, verifies and finds damage" {
  python3 - <<'PYTHON'
import json, struct
header = json.dumps({"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}).encode()
open("m.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + struct.pack("<4f", 1, 2, 3, 4))
PYTHON
  ddp-ckpt convert m.safetensors ckpt
  ddp-ckpt verify ckpt
  ddp-ckpt convert ckpt/step-* back.safetensors
  ddp-ckpt convert ckpt/step-* again.pt
  file=$(ls ckpt/step-*/*.h5)
  printf '\x7f' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 7)) conv=notrunc status=none
  run -1 ddp-ckpt verify ckpt
}

@test "job scripts find out whether a site has a default type of MPI" {
  # shellcheck disable=SC1090
  source <(grep -A 3 '^if .*MpiDefault' "$project_root/jobscripts/train.sbatch")
  ! has_pmix || [ "$SLURM_MPI_TYPE" = pmix ]
}
