# SPDX-License-Identifier: Apache-2.0
# The messages of the program fault_ranks for each of its faults, and a check that all ranks have
# exited. Used by the tests that run it under mpirun and under srun.
# shellcheck shell=bash

# Prints an extended regular expression for the only line that the job may print about fault $1.
fault_text() {
  local process='\(.*, process [0-9]+\)'
  case $1 in
    kill-*) echo "rank 1 $process exited unexpectedly: it was killed or crashed;.*" ;;
    stop-*) echo "rank 1 $process does not answer: stopped.*; rank [02] waited 4 s in .*" ;;
    throw-in-forward) echo 'rank 1 on .*: bad sample 17' ;;
    wrong-shape) echo 'rank 1 on .*: mat1 and mat2 shapes cannot be multiplied \(4x5 and 6x8\)' ;;
    skip-step) echo 'rank . on .*: the ranks are not in the same step: rank 0 is in step 3 .*\(tag 3\), rank 1 in step 3 .*\(tag 4\);.*' ;;
    swapped-parameters) echo "rank . on .*: the model of rank 1 differs from that of rank 0: tensor 4 is 'left.weight .*' on rank 0 and 'right.weight .*' on rank 1.*" ;;
    extra-layer) echo "rank . on .*: the model of rank 1 differs from that of rank 0: .* 'extra.weight .*' on rank 1 \(11 and 13 tensors in total\).*" ;;
    nan) echo 'rank . on .*: the loss is not finite on rank 1 in step 3: .*' ;;
    # Reported as soon as two ranks differ, whether or not the third has called anything.
    uneven-data) echo "the ranks do not call the same collectives: (rank 1 $process called barrier .*; (ranks 0 and 2|rank [02] $process) called broadcast|rank 2 $process called broadcast .*; rank 1 $process called barrier) .*" ;;
    leave-out-norm) echo "rank 1 $process skipped a collective in which the others wait, and rank 1 waits in all_reduce #[0-9]+ \((step agreement|bucket .*)\); all must run the same layers in the same order; rank . waited 4 s in .*" ;;
    short-message) echo 'rank 0 expected a message of 64 bytes from rank 1, which sent a different length; .*' ;;
    long-message) echo 'rank 0 expected a message of 32 bytes from rank 1, which sent a different length; .*' ;;
    # Of sharded training. Strategies without gathers have fewer collectives, so the agreement finds the difference.
    micro-batches) echo "(rank . on .*: the ranks are not in the same step: rank 0 is in step 3 with 2 micro-batches .*, rank 1 in step 3 with 3 micro-batches .*|the ranks do not call the same collectives: .*rank 1 $process called reduce_scatter .*gradients of layers.*step agreement.*|the ranks do not call the same collectives: .*step agreement.*rank 1 $process called reduce_scatter .*)" ;;
    order) echo "rank 1 $process skipped a collective in which the others wait, and rank 1 waits in gathered parameters all_gather .*; all must run the same layers in the same order; .*" ;;
    caught) echo "(rank . on .*: the ranks are not in the same step: rank 0 is in step 3 .*, rank 1 in step 4 .*|rank 1 $process skipped a collective in which the others wait, and rank 1 waits in gathered parameters all_gather .*; all must run the same layers in the same order; .*)" ;;
    *) return 1 ;;
  esac
}

# check_fault FAULT DIRECTORY RANK...: checks that DIRECTORY/out has the expected message once, and
# that each RANK was notified and exited with 1 on its own.
check_fault() {
  local fault=$1 directory=$2 rank
  shift 2
  if ! grep -qxE "fault_ranks: $(fault_text "$fault")" "$directory/out" ||
    grep -q '^frame #' "$directory/out" ||
    [ "$(grep -c '^fault_ranks: ' "$directory/out")" -ne 1 ]; then
    cat "$directory/out"
    return 1
  fi
  for rank in "$@"; do
    [ -s "$directory/told.$rank" ] || { echo "rank $rank was not notified"; return 1; }
    [ "$(cat "$directory/exit.$rank")" = 1 ] || { echo "rank $rank did not exit with 1"; return 1; }
  done
}
