#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The job scripts of jobscripts/ and ddp-check as jobs of a real SLURM: killed ranks, requeues, a
# bad node, a cut link.

bats_require_minimum_version 1.5.0
load common

setup_file() {
  cluster_up 4 --mpi-default none # the job scripts request what they need
  export OMP_NUM_THREADS=1
}
teardown_file() { cluster_down; }

setup() {
  cd "$work"
  rm -rf ./*
  scripts=$project_root/jobscripts
}

teardown() { [ -z "${link_of:-}" ] || unthrottle "$link_of"; }

training=(--model mnist-cnn --data digits --batch 32 --lr 0.05)

# Kills the training task of a node, as a crash would.
kill_task_on() { # node
  local pid
  for pid in $(pgrep -x ddp-train); do
    if tr '\0' '\n' < "/proc/$pid/environ" | grep -qx "SLURMD_NODENAME=$1"; then
      kill -KILL "$pid"
      return
    fi
  done
  return 1
}

checkpoint_appears_in() { compgen -G "$1/checkpoints/step-*" > /dev/null; }

# Limits the outgoing rate of a node on the node's own interface.
throttle() { # node, rate
  link_of=$1
  "$cluster" exec "$1" -- tc qdisc add dev eth0 root tbf rate "$2" burst 64kb latency 50ms
}
unthrottle() { "$cluster" exec "$1" -- tc qdisc del dev eth0 root; }

@test "a killed rank is named and ends the job within seconds" {
  RUN_DIR=$work/run run_job -o log "$scripts/train.sbatch" "${training[@]}" --epochs 1000 3>&- &
  local job=$! begin
  wait_until 60 checkpoint_appears_in run
  kill_task_on node2
  begin=$SECONDS
  if wait "$job"; then false; fi
  [ $((SECONDS - begin)) -lt 30 ]
  grep -E '^ddp-train: rank 1 \(node2, process [0-9]+\) exited unexpectedly' log || { cat log && false; }
  assert_nodes_in_service
}

@test "resume.sbatch requeues a crashed job, and the result is bitwise equal" {
  RUN_DIR=$work/whole run_job -o whole.log "$scripts/train.sbatch" "${training[@]}" --epochs 20
  RUN_DIR=$work/run run_job -o log "$scripts/resume.sbatch" "${training[@]}" --epochs 20 \
    --checkpoint-every 10 3>&- &
  local job=$!
  wait_until 60 checkpoint_appears_in run
  kill_task_on node1
  wait "$job"
  grep -F 'requeueing the job (restart 1 of 3)' log
  grep -F 'resumed from' log
  [ "$(parameters_of log)" = "$(parameters_of whole.log)" ]
}

@test "resume.sbatch does not requeue after a usage error" {
  RUN_DIR=$work/run run ! run_job -o log "$scripts/resume.sbatch" --data mnist:/nowhere
  cat log
  [ "$(grep -c '^ddp-train: ' log)" -eq 1 ]
  run ! grep -F 'requeueing the job' log
}

@test "checked_train.sbatch leaves out a node with bad data and trains on the rest" {
  CHECK_ARGS='--mib 8 --slow-warning 0.9 --slow-critical 0.9 --inject corrupt:node2' WANT_NODES=2 \
    RUN_DIR=$work/run run_job -N3 -o log "$scripts/checked_train.sbatch" --epochs 3
  grep -x 'training on node\[1,3\], without node2' log
  [ "$(cat run/checks/exclude.txt)" = node2 ]
  python3 - <<'PY'
import json
record = json.load(open("run/report/run.json"))
assert sorted(rank["node"] for rank in record["ranks"]) == ["node1", "node3"], record["ranks"]
PY
}

@test "checked_train.sbatch does not train on fewer nodes than required" {
  CHECK_ARGS='--mib 8 --slow-warning 0.9 --slow-critical 0.9 --inject corrupt:node2' WANT_NODES=3 \
    RUN_DIR=$work/run run ! run_job -N3 -o log "$scripts/checked_train.sbatch" --epochs 3
  grep -F '3 nodes wanted, 3 given, 1 left out (node2): only 2 are left' log
  grep -F 'too few good nodes (bad: node2); not training' log
  [ ! -e run/report ]
}

# net_ends_with STATUS: creates a ddp-check whose `net` names no node to leave out and exits with
# STATUS.
net_ends_with() {
  mkdir -p fake
  # shellcheck disable=SC2016 # the program's own variables
  printf '%s\n' '#!/bin/bash' '[ "$1" = net ] || { : > "${*: -1}" && exit 0; }' \
    '[[ " $* " == *" --noise warning "* ]] || exit 2' \
    '[ "$SLURM_PROCID" -ne 0 ] || { mkdir -p run/checks && : > run/checks/exclude.txt' \
    'echo "$SLURM_JOB_NODELIST" > run/checks/good_hostlist.txt; }' "exit $1" > fake/ddp-check
  chmod 755 fake/ddp-check
}

@test "checked_train.sbatch trains if only speeds are too noisy, but not if a result is unknown" {
  net_ends_with 1
  PATH=$work/fake:$PATH RUN_DIR=$work/run run_job -N3 -o log "$scripts/checked_train.sbatch" --epochs 1
  grep -x 'training on node\[1-3\]' log
  net_ends_with 3
  rm -r run
  PATH=$work/fake:$PATH RUN_DIR=$work/run run ! run_job -N3 -o log "$scripts/checked_train.sbatch" --epochs 1
  grep -F 'the network check failed and names no node to leave out; not training' log
  [ ! -e run/report ]
}

@test "scaling_sweep.sbatch keeps the batch per rank for weak scaling" {
  SCALING=weak GLOBAL_BATCH=32 REPEATS=1 RANKS='1 2' RUN_DIR=$work/sweep \
    run_job -o log "$scripts/scaling_sweep.sbatch" --model mlp --data digits --epochs 2
  python3 - <<'PY'
import json
for ranks in (1, 2):
    record = json.load(open(f"sweep/ranks-{ranks}-repeat-1/run.json"))
    assert (record["world_size"], record["global_batch"]) == (ranks, 32 * ranks), record
PY
  grep -q '<svg' sweep/scaling.html
}

@test "ddp-check blames no healthy node" {
  # Beside other tests, the latency may deserve a WARNING, which names no node.
  run --separate-stderr srun --mpi="$mpi" --ddp -N3 --ntasks-per-node=1 ddp-check net --slow-warning 0.9 --slow-critical 0.9 \
    --exclude-file exclude.txt
  [ "$status" -le 1 ]
  [[ $output == *" nodes=3 tasks=3 "* ]]
  [ ! -s exclude.txt ]
}

# bats test_tags=full
@test "ddp-check names the node whose link is throttled to a hundredth" {
  [ "$cluster_mode" = netns ] || skip "plain mode: the nodes do not have their own links"
  throttle node2 200mbit
  run -2 srun --mpi="$mpi" --ddp --kill-on-bad-exit=0 -N4 --ntasks-per-node=1 ddp-check net --mib 8 \
    --slow-warning 0.9 --slow-critical 0.9 --exclude-file exclude.txt
  [ "$(cat exclude.txt)" = node2 ]
}

@test "ddp-check node works on every node, and reports a fault of one node" {
  run srun --kill-on-bad-exit=0 -N3 --ntasks-per-node=1 ddp-check node
  [ "$status" -le 1 ]
  for node in node1 node2 node3; do grep -F "$node" <<< "$output"; done
  [ "$cluster_mode" = netns ] || return 0
  "$cluster" exec node3 -- mount -o remount,size=16m /dev/shm
  run srun --kill-on-bad-exit=0 -N3 --ntasks-per-node=1 ddp-check node
  "$cluster" exec node3 -- mount -o remount,size=1g /dev/shm
  [ "$status" -eq 2 ]
  [ "$(grep -o '^CRITICAL [^:]*' <<< "$output")" = 'CRITICAL node3 /dev/shm storage.shm' ]
}

# bats test_tags=full
@test "two pipelines of gpt, each on a node, reach the loss of one process" {
  cat "$project_root"/docs/*.md > text
  local gpt=(--model gpt --data text:text --layers 4 --width 32 --context 32 --batch 4 --lr 0.05 --steps 40)
  srun --mpi="$mpi" -N1 -n1 ddp-train "${gpt[@]}" --accumulate 8 > one
  srun --mpi="$mpi" --ddp -N2 --ntasks-per-node=2 ddp-train "${gpt[@]}" --accumulate 4 --stages 2 > pipelines
  cat pipelines
  # Ranks 0 and 1, which are neighbors, share the first of two nodes.
  grep -E '^ +0 +0,2 +node[1-3],node[1-3] ' pipelines
  grep -E '^ +1 +1,3 +node[1-3],node[1-3] ' pipelines
  python3 - one pipelines << 'PY'
import re, sys
losses = []
for name in sys.argv[1:]:
    done = re.search(r"^done: .* train loss ([0-9.]+), eval loss ([0-9.]+),", open(name).read(), re.M)
    losses.append([float(done[1]), float(done[2])])
print(losses)
assert all(abs(a - b) < 1e-3 for a, b in zip(*losses)), losses
assert losses[0][0] < 5.2, losses
PY
}
