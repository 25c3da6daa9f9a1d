#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Three processes with a sharded training, of which one is killed at a chosen place: the others must exit within
# seconds, with one sentence that names it.

bats_require_minimum_version 1.5.0
load training
load faults

setup() {
  training_setup
  program=$build/tests/sharded_fault_ranks
}

# end FAULT PLACE RANKS STRATEGY...: all must exit, and of the RANKS, such as "0 2", each on its own.
end() {
  local fault=$1 place=$2 told=$3 strategy status work
  for strategy in "${@:4}"; do
    work=$BATS_TEST_TMPDIR/$strategy
    mkdir "$work"
    status=0
    # mpirun would kill the others.
    timeout -k 5 90 mpirun --enable-recovery -n 3 "$program" "$strategy" "$place" "$work" > "$work/out" 2>&1 ||
      status=$?
    echo "$strategy: $status"
    if ! ended_in_time "$status"; then
      cat "$work/out"
      return 1
    fi
    # shellcheck disable=SC2086  # a list
    check_fault "$fault" "$work" $told
  done
}
killed() { end "kill-in-$1" "$1" "0 2" "${@:2}"; }
differs() { end "$1" "$1" "0 1 2" "${@:2}"; }

# bats test_tags=full
@test "without a fault, all ranks exit" {
  for strategy in optimizer parameters hybrid; do
    timeout -k 5 90 mpirun -n 3 "$program" $strategy nowhere "$BATS_TEST_TMPDIR"
    for rank in 0 1 2; do [ "$(cat "$BATS_TEST_TMPDIR/exit.$rank")" = 0 ]; done
    rm "$BATS_TEST_TMPDIR"/exit.*
  done
}

@test "a rank killed while the others wait for a unit's parameters" { killed forward parameters; }
# bats test_tags=full
@test "a rank killed while the others wait for its gradients" { killed backward gradients parameters hybrid; }
# bats test_tags=full
@test "a rank killed between its update and the exchange of it" { killed update optimizer parameters hybrid; }
@test "a rank killed between two steps" { killed next-step gradients parameters; }
@test "a rank killed while the others wait in an evaluation" { killed evaluation parameters; }

# bats test_tags=full
@test "a rank with another number of micro-batches" { differs micro-batches gradients parameters; }
# bats test_tags=full
@test "a rank that calls units in another order, in a forward without gradients" { differs order parameters; }
# bats test_tags=full
@test "a rank that catches an error in forward, and begins the next step" { differs caught gradients parameters; }
