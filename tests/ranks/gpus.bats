#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Processes under mpirun that share a GPU, which is that of the fake of CUDA.

bats_require_minimum_version 1.5.0
load training

setup() {
  training_setup
  fake=$build/lib/libslurm_ddp_fake_gpu.so
}

ranks() {
  local n=$1
  shift
  timeout -k 5 60 mpirun --enable-recovery -n "$n" "$build/tests/staged_ranks" "$@" 3>&-
}

@test "ranks send the memory of one GPU through the host" {
  run -0 ranks 3 "$fake" mpi
  [[ $output == *"3 ranks on GPU 0 are done"* ]] || { echo "$output"; false; }
  [[ $output != *"NCCL"* ]]
}

@test "ranks that share a GPU choose MPI, and say why" {
  run -0 ranks 2 "$fake" auto
  echo "$output"
  [[ $output == *"ranks 0 and 1 on $(hostname) both use the GPU 0000:01:00.0, which NCCL refuses, so GPU memory is sent by MPI through the host"* ]]
  [[ $output == *"2 ranks on GPU 0 are done"* ]]
}

@test "NCCL refuses ranks that share a GPU, and the error names the remedy" {
  run ranks 2 "$fake" nccl
  echo "$output"
  [[ $output == *"staged_ranks: ranks 0 and 1 on $(hostname) both use the GPU 0000:01:00.0; request one GPU per task"*"or use --backend mpi"* ]]
}

@test "a rank that is killed ends the ranks that wait for its GPU memory" {
  run ranks 3 "$fake" mpi kill
  echo "$output"
  [ "$status" -lt 124 ] # not by the time limit
  [[ $output == *"staged_ranks: rank 1 ("*") exited unexpectedly: it was killed or crashed"* ]]
  [[ $output != *"are done"* ]]
}
