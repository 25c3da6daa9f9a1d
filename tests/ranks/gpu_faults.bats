#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Three processes under mpirun whose collectives run on simulated GPUs, with a fault in one of them:
# all must exit within seconds, although a collective on a GPU cannot be interrupted from outside.

bats_require_minimum_version 1.5.0
load training

setup() {
  training_setup
  program=$build/tests/gpu_fault_ranks
}

# start FAULT: starts the ranks in the background. --enable-recovery: mpirun itself would kill the
# others as soon as one fails.
start() {
  timeout -k 5 60 mpirun --enable-recovery -n 3 "$program" "$1" "$work" > "$work/out" 2>&1 3>&- &
  job=$!
}

# ends: the job ends by itself, before its time limit.
ends() {
  local status=0
  wait "$job" || status=$?
  cat "$work/out"
  ended_in_time "$status"
}

# signal NAME: sends a signal to rank 1 when the collectives of all ranks are about to hang.
signal() {
  until [ -s "$work/pid.0" ] && [ -s "$work/pid.1" ] && [ -s "$work/pid.2" ]; do
    kill -0 "$job" || { cat "$work/out" && return 1; }
    sleep 0.05
  done
  kill "-$1" "$(cat "$work/pid.1")"
}

@test "a rank that is killed during a collective on GPUs is named" {
  start hang
  signal KILL
  ends
  grep -qxE 'gpu_fault_ranks: rank 1 \(.*, process [0-9]+\) exited unexpectedly.*' "$work/out"
}

# bats test_tags=full
@test "a rank that is stopped during a collective on GPUs is named, and does not stay" {
  start hang
  signal STOP
  ends
  grep -qxE 'gpu_fault_ranks: rank 1 \(.*, process [0-9]+\) has been silent for 8 s, but the machine answers: it is stopped.*' "$work/out"
  while kill -0 "$(cat "$work/pid.1")"; do sleep 0.1; done # mpirun kills it
}

@test "an error that NCCL reports on one rank ends all" {
  start nccl-error
  ends
  grep -qE '^gpu_fault_ranks: rank 1 on .*: .*remote process exited or there was a network error' "$work/out"
}

@test "a rank that is killed is named, although NCCL's error on another rank comes first" {
  start echo
  ends
  grep -qxE 'gpu_fault_ranks: rank 2 \(.*, process [0-9]+\) exited unexpectedly.*' "$work/out"
  run ! grep -q 'rank 1' "$work/out"
}

@test "a user error ends all ranks with 2, although NCCL's error on another rank comes first" {
  start echo-usage
  ends
  grep -qE '^gpu_fault_ranks: rank 2 on .*: no such file$' "$work/out"
  for rank in 0 1 2; do [ "$(cat "$work/exit.$rank")" = 2 ]; done
}

@test "a lost GPU ends all ranks" {
  start lost-gpu
  ends
  # Whether the call that was under way or the next one notices it is a matter of luck.
  grep -qE '^gpu_fault_ranks: rank 1 on .*: all_reduce #[0-9]+ \(gradients\) (did not end|cannot start), .*\(214\)' "$work/out"
}

@test "an exception between two collectives on GPUs ends all ranks" {
  start end-program
  ends
  grep -qE '^gpu_fault_ranks: rank 1 on .*: the data is unreadable$' "$work/out"
}

# bats test_tags=full
@test "collectives that never end on the GPUs of all ranks end at the timeout" {
  GPU_FAULT_RANKS_TIMEOUT=4 start hang
  ends
  grep -qE 'waited 4\.[0-9] s for all_reduce #[0-9]+ \(gradients\) on its GPU; all ranks joined the collective' "$work/out"
}
