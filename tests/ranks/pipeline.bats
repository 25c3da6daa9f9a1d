#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Pipelines of several processes: the same parameters on any number of ranks, with dropout, and the
# end of all ranks when one is killed or throws.

bats_require_minimum_version 1.5.0
load training

setup() {
  training_setup
  program=$build/tests/pipeline_ranks
}

# ranks N FAULT [REPLICAS]: see faults.bats for the option.
ranks() {
  timeout -k 5 60 mpirun --bind-to none --enable-recovery -n "$1" "$program" "$2" "$work" "${@:3}" > "$work/out" 2>&1
}

# sums N [REPLICAS]: what the ranks print, in the order of the stages.
sums() {
  ranks "$1" none "${@:2}" || { cat "$work/out" && return 1; }
  grep "^stages\." "$work/out" | sort -t . -k 2n -s # Open MPI 6 writes about deprecated variables, too
}

# all_end FAULT TEXT [ADDITION]: one line says what happened, all ranks know of it, and those alive exit with 1. The
# addition may have a line of its own, because the loss of a rank is printed before the main thread knows of it.
all_end() {
  local status=0 rank addition=${3:-}
  ranks 3 "$1" || status=$?
  if ! ended_in_time "$status" || ! grep -qE "^pipeline_ranks: $2" "$work/out" ||
    ! grep -qE "^pipeline_ranks: rank 1 .*$addition\$" "$work/out" ||
    [ "$(grep -c '^pipeline_ranks: ' "$work/out")" -gt "$(($# - 1))" ]; then
    cat "$work/out"
    return 1
  fi
  for rank in 0 2; do
    grep -qE "$2.*$addition\$" "$work/told.$rank" || { cat "$work/told.$rank" && return 1; }
    [ "$(cat "$work/exit.$rank")" = 1 ]
  done
}

lost='rank 1 \(.*, process [0-9]+\) exited unexpectedly: .*'
stages='; it ran stages 1 and 4 of the pipeline in step 2'

@test "1, 2, 3 and 6 ranks train a model with dropout to the same bits" {
  sums 1 > "$work/one"
  [ "$(wc -l < "$work/one")" -eq 12 ]
  local n
  for n in 2 3 6; do
    sums "$n" > "$work/several"
    diff "$work/one" "$work/several"
  done
}

# The sums of the replicas are added up, so they differ from one process in rounding.
@test "two replicas of a pipeline train to the parameters of one process" {
  sums 1 > "$work/one"
  sums 4 2 > "$work/several"
  [ "$(wc -l < "$work/several")" -eq 12 ]
  paste -d ' ' "$work/one" "$work/several" |
    awk '$1 != $3 || ($2 - $4) ^ 2 > 1e-10 * $2 ^ 2 { print; bad = 1 } END { exit bad }'
}

@test "a rank killed in the warm-up of a pipeline is named with its stages" { all_end kill-in-warm-up "$lost" "$stages"; }
@test "a rank killed in the steady state of a pipeline is named with its stages" { all_end kill-in-steady-state "$lost" "$stages"; }
@test "a rank killed in the cool-down of a pipeline is named with its stages" { all_end kill-in-cool-down "$lost" "$stages"; }
@test "an exception in a stage is reported once, with the stage and the micro-batch" {
  all_end throw '.*forward of stage 1 of 6 on micro-batch 3: bad sample 17'
}
