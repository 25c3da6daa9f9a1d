#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-run in a job of three nodes that lose ranks, links and nodes.

bats_require_minimum_version 1.5.0
load common

setup_file() {
  cluster_up 3
  export OMP_NUM_THREADS=1
  has_pmix || export SLURM_DDP=auto
}
teardown_file() { cluster_down; }

setup() {
  cd "$work"
  rm -rf ./run ./log
  [[ $cluster_mode == netns ]] || skip "nodes without networks of their own lose no links"
}

# A cancelled job keeps its nodes until each of them has confirmed. If slurmctld asked one whose link
# was cut, it asks again only much later, and the job of the next test would wait for that.
teardown() {
  [ -z "${frozen[*]:-}" ] || kill -CONT "${frozen[@]}" 2> /dev/null || true # if the test failed before
  for node in node1 node2 node3; do "$cluster" exec "$node" -- ip link set eth0 up; done
  scancel --user="$(id -un)" 2> /dev/null || true
  wait_until 120 nodes_are_idle
}
nodes_are_idle() { [ "$(sinfo -h -N -o %T | sort | uniq -c | xargs)" = "3 idle" ]; }

training=(--model mlp --data digits --batch 16 --lr 0.05 --checkpoint-every 50 --keep-last 3)

# events TEXT, KEY: prints the values of a key in the lines of events.jsonl that have a text.
events() {
  grep -F "$1" run/events.jsonl |
    python3 -c 'import json, sys; [print(json.loads(line).get(sys.argv[1])) for line in sys.stdin]' "$2"
}
starts() { events '"start"' generation 2> /dev/null | wc -l; }
has_started() { [ "$(starts)" -ge "$1" ]; }
kept_since_start() { grep -qF "\"event\":\"kept\",\"generation\":$1," run/events.jsonl; }

# submit OPTIONS OF DDP-RUN... -- TRAINING OPTIONS...
submit() {
  local options=()
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  shift
  mkdir -p run
  cat > job.sh <<JOB
#!/bin/bash
ddp-run ${options[*]} --events run/events.jsonl -- ddp-train --checkpoint-dir run/ck ${training[*]} $*
echo "ddp-run ended with \$?"
JOB
  job=$(sbatch --parsable --no-kill --nodes=3 --ntasks-per-node=1 --time=10 --output=log job.sh)
}

# Prints a process of the job's program.
rank_of_job() {
  local pid
  for pid in $(pgrep -x ddp-train); do
    if tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "SLURM_JOB_ID=$job"; then echo "$pid" && return; fi
  done
}

# Prints the checksum of the parameters at the end of a run.
last_parameters() { grep -o 'parameters 0x[0-9a-f]*$' "$1" | tail -n 1; }

@test "a killed rank costs the steps since the last checkpoint, and no bit" {
  submit --nodes 2:2 --spares 1 -- --steps 3000
  wait_until 60 kept_since_start 1
  kill -KILL "$(rank_of_job)"
  wait_until 60 has_started 2
  wait_until 120 job_is_over "$job"
  cat log
  grep -F 'ddp-run ended with 0' log
  [ "$(events '"start"' nodes | tail -n 1)" = "['node1', 'node2']" ]
  killed=$(last_parameters log)
  srun -N2 -n2 -w 'node[1-2]' ddp-train "${training[@]}" --steps 3000 > whole
  [ "$killed" = "$(last_parameters whole)" ]
}

# bats test_tags=full
@test "the parts of a state that only the memory of two nodes has are saved before the end, and no bit is lost" {
  training=(--model mlp --data digits --batch 16 --lr 0.05 --optimizer adamw --shard optimizer --checkpoint-every 1000000)
  submit --nodes 2:2 --max-restarts 0 -- --steps 3000 --checkpoint-memory 50
  wait_until 60 grep -qF '"tier":"memory"' run/events.jsonl
  kill -KILL "$(rank_of_job)"
  wait_until 120 job_is_over "$job"
  cat log
  grep -F 'ddp-run ended with 1' log
  saved=$(sed -n 's/^ddp-run: the state of step \([0-9]*\) is saved$/\1/p' log)
  [ "$saved" -ge "$(events '"tier":"memory"' step | tail -n 1)" ]
  ddp-ckpt verify run/ck
  [ "$("$cluster" exec node1 -- ls /dev/shm)$("$cluster" exec node2 -- ls /dev/shm)" = "" ]
  srun -N2 -n2 -w 'node[1-2]' ddp-train "${training[@]}" --steps 3000 --checkpoint-dir run/ck > resumed
  grep -F "resumed from" resumed
  srun -N2 -n2 -w 'node[1-2]' ddp-train "${training[@]}" --steps 3000 > whole
  [ "$(last_parameters resumed)" = "$(last_parameters whole)" ]
}

@test "a node that no longer answers is replaced by the spare" {
  submit --nodes 2:2 --spares 1 -- --steps 1000000
  wait_until 60 kept_since_start 1
  "$cluster" exec node2 -- ip link set eth0 down
  wait_until 90 has_started 2
  wait_until 60 kept_since_start 2
  cat log run/events.jsonl | grep -v kept
  [ "$(events '"start"' nodes | tail -n 1)" = "['node1', 'node3']" ]
  grep -E 'ddp-run: node2 is not used for 60 s: no sign of life for 10 s' log
}

# bats test_tags=full
@test "a rank that is cut off is gone before the program starts elsewhere, and saves nothing" {
  mkdir run
  cat > writes.sh <<'PROGRAM'
#!/bin/bash
trap 'echo "saves $DDP_RUN_GENERATION" >> run/lines; exit 75' TERM
while :; do
  echo "$(date +%s.%N) generation $DDP_RUN_GENERATION on $SLURMD_NODENAME" >> run/lines
  sleep 0.2
done
PROGRAM
  cat > job.sh <<'JOB'
#!/bin/bash
ddp-run --nodes 2:2 --spares 1 --events run/events.jsonl -- bash ./writes.sh
JOB
  job=$(sbatch --parsable --no-kill --nodes=3 --ntasks-per-node=1 --time=10 --output=log job.sh)
  wait_until 60 grep -q 'generation 1 on node2' run/lines
  "$cluster" exec node2 -- ip link set eth0 down
  wait_until 60 grep -q 'generation 2 on node3' run/lines
  sleep 3
  cat log
  started=$(grep 'generation 2' run/lines | sort -n | head -n 1 | cut -d ' ' -f 1)
  last=$(grep 'generation 1 on node2' run/lines | sort -n | tail -n 1 | cut -d ' ' -f 1)
  python3 -c "import sys; sys.exit(not $last < $started)"
  run ! grep 'saves 1' run/lines
}

# Prints all processes of a node: of SLURM, and of the job.
processes_of_node() {
  local pid
  for pid in $(ip netns pids "ddp-$1"); do
    [ "$(tr '\0' ' ' < "/proc/$pid/cmdline" | cut -c 1-4)" = init ] || echo "$pid"
  done
}

# bats test_tags=full
@test "a node that stands still wakes up after the program has started elsewhere, and saves nothing" {
  mkdir run
  cat > writes.sh <<'PROGRAM'
#!/bin/bash
trap 'echo "saves $DDP_RUN_GENERATION" >> run/lines; exit 75' TERM
while :; do
  echo "generation $DDP_RUN_GENERATION on $SLURMD_NODENAME" >> run/lines
  sleep 0.2 &
  wait "$!" # a signal ends it at once
done
PROGRAM
  cat > job.sh <<'JOB'
#!/bin/bash
exec ddp-run --nodes 2:2 --spares 1 --events run/events.jsonl -- bash ./writes.sh
JOB
  job=$(sbatch --parsable --no-kill --nodes=3 --ntasks-per-node=1 --time=10 --output=log job.sh)
  wait_until 60 grep -q 'generation 1 on node2' run/lines
  mapfile -t frozen < <(processes_of_node node2)
  kill -STOP "${frozen[@]}"
  wait_until 60 grep -q 'generation 2 on node3' run/lines
  kill -CONT "${frozen[@]}"
  sleep 3
  cat log
  run ! grep 'saves 1' run/lines
  for pid in $(pgrep -f writes.sh); do
    run ! grep -qz '^SLURMD_NODENAME=node2$' "/proc/$pid/environ"
  done
}

# bats test_tags=full
@test "without a spare the job shrinks, and grows when the node is back" {
  submit --nodes 2:3 --cooldown 5 --grow-every 1 -- --steps 1000000
  wait_until 60 kept_since_start 1
  "$cluster" exec node3 -- ip link set eth0 down
  wait_until 90 has_started 2
  wait_until 60 kept_since_start 2
  [ "$(events '"start"' nodes | tail -n 1)" = "['node1', 'node2']" ]
  "$cluster" exec node3 -- ip link set eth0 up
  wait_until 120 has_started 3
  wait_until 60 kept_since_start 3
  cat log
  [ "$(events '"start"' nodes | tail -n 1)" = "['node1', 'node2', 'node3']" ]
  grep -E 'generation 3 on 3 of 3 nodes, newest known state: step [0-9]+ in a checkpoint: more nodes can be used' log
  # Only failures cost a restart; the growth saved all its steps.
  [ "$(events '"code":75' code | sort -u)" = 75 ]
}

# bats test_tags=full
@test "only numbers of nodes are started that can divide the step, with the bits of one process" {
  training=(--model mlp --data digits --global-batch 32 --blocks 4 --deterministic --lr 0.05 --checkpoint-every 50
    --keep-last 3)
  submit --nodes 1:3 -- --steps 800
  wait_until 60 kept_since_start 1
  "$cluster" exec node2 -- ip link set eth0 down
  wait_until 90 has_started 2
  "$cluster" exec node2 -- ip link set eth0 up # without it, SLURM cannot complete the job
  wait_until 120 job_is_over "$job"
  cat log
  grep -F 'ddp-run: --blocks 4 of ddp-train does not divide evenly on every size from 1 to 3 nodes; only these will be used: 1, 2' log
  grep -F 'ddp-run ended with 0' log
  [ "$(events '"start"' nodes | head -n 1)" = "['node1', 'node2']" ]
  [ "$(events '"start"' nodes | tail -n 1)" = "['node1', 'node3']" ]
  ddp-train "${training[@]}" --steps 800 > alone
  [[ $(last_parameters log) == "parameters 0x"* ]]
  [ "$(last_parameters log)" = "$(last_parameters alone)" ]
}

was_requeued() { scontrol show job "$job" | grep -q ' Restarts=1 '; }
host_is_watched() { pgrep -f "ddp-run watch -- node1" > /dev/null; }

# With --no-kill, SLURM takes the node out of the job, and keeps the others allocated.
# bats test_tags=full
@test "a job that loses the node of its batch script is requeued" {
  submit --nodes 2:2 --spares 1 -- --steps 100000
  wait_until 60 kept_since_start 1
  wait_until 60 host_is_watched
  "$cluster" exec node1 -- ip link set eth0 down
  wait_until 120 was_requeued
}
