#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Three processes under mpirun, with a fault in one of them: all must exit within seconds, with one
# sentence that names the rank and the cause.

bats_require_minimum_version 1.5.0
load training
load faults

setup() {
  training_setup
  program=$build/tests/fault_ranks
}

# ranks N FAULT [mpirun's options]: runs fault_ranks within the time limit. mpirun would kill the
# other ranks as soon as one fails; --enable-recovery prevents that, so that the ranks have to exit
# on their own.
ranks() {
  local n=$1 fault=$2
  shift 2
  timeout -k 5 90 mpirun "$@" -n "$n" "$program" "$fault" "$work" > "$work/out" 2>&1
}

# all_end FAULT RANK...: all three ranks must exit, and each RANK must exit with 1 on its own.
all_end() {
  local status=0
  ranks 3 "$1" --enable-recovery || status=$?
  # Exit codes of `timeout`.
  if ! ended_in_time "$status"; then
    cat "$work/out"
    return 1
  fi
  check_fault "$1" "$work" "${@:2}"
}

@test "without a fault, three ranks learn the same as one, including SyncBatchNorm" {
  ranks 3 none
  mv "$work/parameters" "$work/of-three"
  ranks 1 none
  python3 - "$work/of-three" "$work/parameters" <<'PY'
import sys
three, one = ([float(line) for line in open(name)] for name in sys.argv[1:])
assert len(three) == len(one) == 143, (len(three), len(one))
worst = max(abs(a - b) / max(1, abs(b)) for a, b in zip(three, one))
assert worst < 1e-5, worst
PY
}

mpirun_ends_stopped_processes() {
  ! mpirun --version | grep -q '(Open MPI) 6' || skip "this mpirun waits forever for a process that is stopped"
}

@test "a rank killed in backward" { all_end kill-in-backward 0 2; }
@test "a rank killed while the others wait for its sums in SyncBatchNorm" { all_end kill-in-norm 0 2; }
@test "a rank stopped in backward is identified when the timeout expires" {
  mpirun_ends_stopped_processes
  all_end stop-in-backward 2
}
# bats test_tags=full
@test "a rank stopped while the others wait in SyncBatchNorm is identified when the timeout expires" {
  mpirun_ends_stopped_processes
  all_end stop-in-norm 2
}
@test "an exception in forward" { all_end throw-in-forward 0 1 2; }
@test "a PyTorch error is reported without its stack frames" { all_end wrong-shape 0 1 2; }
@test "a rank that skips a step" { all_end skip-step 0 1 2; }
@test "two parameters swapped on one rank" { all_end swapped-parameters 0 1 2; }
@test "an extra layer on one rank" { all_end extra-layer 0 1 2; }
@test "a NaN loss on one rank" { all_end nan 0 1 2; }
@test "data that runs out early on one rank, without an uneven step" { all_end uneven-data 0 1 2; }
# bats test_tags=full
@test "a SyncBatchNorm layer that one rank skips" { all_end leave-out-norm 0 1 2; }
@test "a message shorter than its receiver expects" { all_end short-message 0 1 2; }
@test "a message longer than its receiver expects" { all_end long-message 0 1 2; }

# bats test_tags=full
@test "a rank that hangs in its last lines is named, and the job fails" {
  ranks 3 hang-at-end --enable-recovery || true
  cat "$work/out"
  grep -qxE 'fault_ranks: rank 1 \(.*\) did not join the collective: it last completed barrier #[0-9]+ \(end of training\) .*\(end of the job\).*' "$work/out"
  for rank in 0 1 2; do [ "$(cat "$work/exit.$rank")" = 1 ]; done
}

@test "no rank waits forever for one that was killed before MPI connects" {
  local status=0
  ranks 3 kill-before-start --enable-recovery || status=$?
  [ "$status" -ne 124 ]
  grep -E '^slurm-ddp: process [0-9]+ on .*: MPI did not connect the processes of this job within 3 s' "$work/out"
}

# bats test_tags=full
@test "mpirun's exit code shows that the job failed, and no stopped process is left behind" {
  run ! ranks 3 throw-in-forward
  run ! ranks 3 stop-in-backward
  run ! pgrep -f "$program stop-in-backward $work"
}

# bats test_tags=full
@test "a failure leaves a record of what all ranks were doing" {
  ranks 3 leave-out-norm --enable-recovery || true
  python3 - "$work/failure.json" <<'PY'
import json, sys
record = json.load(open(sys.argv[1]))
assert record["schema"] == "slurm-ddp/failure/1" and record["rank"] == 1, record
begun = [rank["activity"]["collectives_begun"] for rank in record["ranks"]]
assert [b["SyncBatchNorm"] for b in begun] == [5, 4, 5], begun
PY
}

# comm_ranks N WHAT NUMBER [mpirun's options]: starts ranks that only communicate, in the
# background. Returns when all of them are running.
comm_ranks() {
  local n=$1 what=$2 number=$3 rank
  shift 3
  timeout -k 5 90 mpirun "$@" -n "$n" "${program%/*}/comm_ranks" "$what" "$number" "$work" \
    > "$work/out" 2>&1 3>&- &
  job=$!
  for ((rank = 0; rank < n; rank++)); do
    until [ -s "$work/pid.$rank" ]; do
      kill -0 "$job" || { cat "$work/out"; return 1; }
      sleep 0.1
    done
  done
}

# bats test_tags=full
@test "a stopped rank is named within seconds, by default" {
  comm_ranks 3 barriers 60 --enable-recovery
  kill -STOP "$(cat "$work/pid.1")"
  wait "$job" || true # with --enable-recovery, mpirun may still exit with 0
  cat "$work/out"
  grep -qxE 'comm_ranks: rank 1 \(.*, process [0-9]+\) has been silent for 8 s, but the machine answers: it is stopped .*; rank [02] waited 5 s in .*' "$work/out"
  python3 -c 'import json, sys
record = json.load(open(sys.argv[1]))
assert record["kind"] == "stopped" and record["rank"] == 1, record
assert [lost["rank"] for lost in record["lost"]] == [1], record' "$work/failure.json"
}

# bats test_tags=full
@test "a rank that stops for a few seconds is tolerated, and a suspended job continues" {
  COMM_RANKS_TIMEOUT=8 comm_ranks 2 barriers 15
  kill -STOP "$(cat "$work/pid.1")"
  sleep 3
  kill -CONT "$(cat "$work/pid.1")"
  kill -STOP "$(cat "$work/pid.0")" "$(cat "$work/pid.1")"
  sleep 10
  kill -CONT "$(cat "$work/pid.0")" "$(cat "$work/pid.1")"
  wait "$job" || { cat "$work/out"; false; }
  grep -qx 'all is well' "$work/out"
}

@test "all ranks first send large messages to each other and then receive them" {
  comm_ranks 3 all-to-all 4000000
  wait "$job" || { cat "$work/out"; false; }
  grep -qx '3 ranks have exchanged 4000000 bytes' "$work/out"
}

@test "an exception that is not a std::exception is reported, too" {
  comm_ranks 2 throw-42 0 --enable-recovery
  wait "$job" || true # with --enable-recovery, mpirun may still exit with 0
  cat "$work/out"
  grep -qxE 'comm_ranks: rank 1 on .*: the program threw a value of type int, which is not a std::exception and has no text' "$work/out"
}

# bats test_tags=full
@test "groups of some ranks communicate at the same time, and share memory" {
  for what in parts shards; do
    comm_ranks 4 "$what" 2
    wait "$job" || { cat "$work/out"; false; }
    grep -qx 'all is well' "$work/out"
  done
}

# ends_if_killed WHAT: rank 3 is killed in the collectives WHAT of two groups.
ends_if_killed() {
  comm_ranks 4 "$1" 60 --enable-recovery
  sleep 0.5
  kill -KILL "$(cat "$work/pid.3")"
  wait "$job" || true
  cat "$work/out"
  grep -qxE 'comm_ranks: rank 3 \(.*, process [0-9]+\) exited unexpectedly: it was killed or crashed; .*' "$work/out"
  for rank in 0 1 2; do
    run kill -0 "$(cat "$work/pid.$rank")"
    [ "$status" -ne 0 ]
  done
}

@test "a rank killed in a collective of some ranks ends all ranks, and is named" { ends_if_killed parts; }
@test "a rank killed in a reduce-scatter or all-gather of some ranks, too" { ends_if_killed shards; }

# A launcher may end the job before the other ranks have finished what they compute.
@test "a killed rank, or rank 0, is named once while the others compute" {
  local killed
  for killed in 1 0; do
    rm -f "$work"/pid.* "$work/computed"
    comm_ranks 3 computes 0 --enable-recovery
    kill -KILL "$(cat "$work/pid.$killed")"
    until grep -qE "^comm_ranks: rank $killed \(.*\) exited unexpectedly" "$work/out"; do
      kill -0 "$job" || { cat "$work/out"; return 1; }
      sleep 0.1
    done
    touch "$work/computed"
    wait "$job" || true
    [ "$(grep -c '^comm_ranks: ' "$work/out")" -eq 1 ] || { cat "$work/out"; return 1; }
  done
}

# bats test_tags=full
@test "a rank stopped in a collective of some ranks is named with the group" {
  comm_ranks 4 parts 60 --enable-recovery
  sleep 0.5
  kill -STOP "$(cat "$work/pid.2")"
  wait "$job" || true
  cat "$work/out"
  grep -qxE "comm_ranks: rank 2 \(.*, process [0-9]+\) has been silent for 8 s, but the machine answers: it is stopped .*; rank 0 waited 5 s in all_reduce #[0-9]+ .*of group 'even' \(ranks 0 and 2\) for rank 2" "$work/out"
}

@test "groups of some ranks that wait for each other are named" {
  COMM_RANKS_TIMEOUT=3 comm_ranks 3 circle 0 --enable-recovery
  wait "$job" || true
  cat "$work/out"
  grep -qE "^comm_ranks: ranks wait for each other in different groups: rank 0 .* waits in barrier #0 \(with the next rank\) of group 'edge 0' \(ranks 0 and 1\) for rank 1, rank 1 .* for rank 2, rank 2 .* waits in barrier #0 \(with the next rank\) of group 'edge 2' \(ranks 0 and 2\) for rank 0; " "$work/out"
}
