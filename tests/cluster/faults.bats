#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A fault on one of three nodes of a real SLURM ends the job step on all of them, with one sentence
# that names the rank and the cause. The faults are those of tests/ranks/faults.bats, but here the
# ranks share neither memory nor a network namespace, and SLURM starts and terminates them.

bats_require_minimum_version 1.5.0
load common
load ../ranks/faults

setup_file() {
  cluster_up 3
  export OMP_NUM_THREADS=1
}
teardown_file() { cluster_down; }

setup() {
  cd "$work"
  rm -rf ./*
}

step=(srun --ddp -N3 --ntasks-per-node=1)
managers="pmix none" # over MPI, and over TCP
has_pmix || managers=none

# ends FAULT RANK...: checks that the fault ends all ranks. With --kill-on-bad-exit=0, SLURM does not terminate the
# other tasks.
ends() {
  local manager status
  for manager in $managers; do
    status=0
    rm -f ./*
    timeout -k 5 90 "${step[@]}" --mpi="$manager" --kill-on-bad-exit=0 "$build_dir/tests/fault_ranks" "$1" "$work" > out 2>&1 ||
      status=$?
    if [ "$status" -eq 0 ] || [ "$status" -eq 124 ]; then
      cat out
      return 1
    fi
    check_fault "$1" "$work" "${@:2}"
  done
}

@test "killed ranks" {
  ends kill-in-backward 0 2
  ends kill-in-norm 0 2
}

# SLURM ends the step when one rank has given up, or before, if its PMIx plugin finds the dead one first; so not each
# message arrives.
@test "the wait for a rank killed before MPI connects is bounded" {
  need_pmix
  run timeout -k 5 90 "${step[@]}" --kill-on-bad-exit=0 "$build_dir/tests/fault_ranks" kill-before-start "$work"
  echo "$output"
  [ "$status" -ne 0 ] && [ "$status" -ne 124 ]
  grep -qE '^slurm-ddp: process [0-9]+ on node[13]: MPI did not connect the processes of this job within 3 s' <<< "$output" ||
    grep -qE 'mpi/pmix.*(Unable to connect|Cannot establish)' <<< "$output"
}

@test "a stopped rank is identified when the timeout expires, and SLURM can terminate it" {
  ends stop-in-backward 2
  run ! pgrep -f "fault_ranks stop-in-backward $work"
  assert_nodes_in_service
}

# hurt SIGNAL RANK WHAT: sends the signal to a rank that is in the collectives WHAT of two groups, and waits for the end of
# the step, whose output is in `out`.
hurt() {
  local rank
  rm -f ./*
  timeout -k 5 90 srun --ddp -N2 --ntasks-per-node=2 --mpi="$manager" --kill-on-bad-exit=0 \
    "$build_dir/tests/comm_ranks" "$3" 60 "$work" > out 2>&1 < /dev/null 3>&- &
  step_process=$!
  for rank in 0 1 2 3; do wait_until 60 [ -s "pid.$rank" ]; done
  kill "-$1" "$(cat "pid.$2")"
  wait $step_process || true
  cat out
}

# bats test_tags=full
@test "a rank stopped in SyncBatchNorm, and one killed or stopped in a collective of some ranks" {
  local manager rank='\(.*, process [0-9]+\)'
  ends stop-in-norm 2
  for manager in $managers; do
    hurt KILL 3 parts
    grep -qxE "comm_ranks: rank 3 $rank exited unexpectedly: it was killed or crashed; .*" out
    hurt KILL 3 shards
    grep -qxE "comm_ranks: rank 3 $rank exited unexpectedly: it was killed or crashed; .*" out
    hurt STOP 2 parts
    grep -qxE "comm_ranks: rank 2 $rank has been silent for 8 s, but the machine answers: it is stopped .* of group 'even' \(ranks 0 and 2\) for rank 2" out
  done
}

# bats test_tags=full
@test "a job suspended for longer than the timeout continues training when it is resumed" {
  for manager in $managers; do suspended_job_continues "$manager"; done
}

suspended_job_continues() {
  rm -rf ./*
  cat > job.sh <<EOF
#!/bin/bash
srun --ddp --mpi=$1 -N3 --ntasks-per-node=1 ddp-train --model mnist-cnn --data digits --epochs 12 --timeout 4 --checkpoint-dir $work/checkpoints --checkpoint-every 5
EOF
  job=$(sbatch --parsable -N3 --ntasks-per-node=1 -o log job.sh)
  wait_until 60 compgen -G "checkpoints/step-*"
  scontrol suspend "$job"
  sleep 10
  scontrol resume "$job"
  wait_until 120 job_is_over "$job"
  cat log
  grep -q '^done: ' log
}

@test "errors of one rank" {
  for fault in throw-in-forward nan skip-step uneven-data; do
    ends "$fault" 0 1 2
  done
}

# bats test_tags=full
@test "models that differ, and messages of another length" {
  for fault in swapped-parameters extra-layer leave-out-norm short-message long-message; do
    ends "$fault" 0 1 2
  done
}

@test "three nodes give the same result as one process, including SyncBatchNorm" {
  "${step[@]}" "$build_dir/tests/fault_ranks" none "$work"
  mv parameters of-three
  srun --ddp -N1 -n1 "$build_dir/tests/fault_ranks" none "$work"
  python3 - <<'PY'
three, one = ([float(line) for line in open(name)] for name in ("of-three", "parameters"))
assert len(three) == len(one) == 143, (len(three), len(one))
assert max(abs(a - b) / max(1, abs(b)) for a, b in zip(three, one)) < 1e-5
PY
}

# Each part is saved by one node, and read by both.
# bats test_tags=full
@test "two nodes that each divide the model have the bits of a training without shards" {
  local train=(--model gpt --width 32 --layers 3 --data "text:$project_root/README.md" --batch 8 --optimizer adamw)
  local in_pairs=(srun --ddp -N2 --ntasks-per-node=2 ddp-train "${train[@]}" --checkpoint-dir)
  run -0 "${in_pairs[@]}" whole --steps 9
  for mode in hybrid none hybrid; do
    steps=$((${steps:-0} + 3))
    run -0 "${in_pairs[@]}" shards --steps $steps --shard $mode
  done
  run "$build_dir/bin/ddp-ckpt" diff whole shards
  [[ $output == *" 0 different, "* ]]
  [[ $(ls shards/step-00000009) == *rank-00000-of-00002.h5*rank-00001-of-00002.h5* ]]
  run -2 srun --ddp -N2 -n3 -m arbitrary -w node1,node1,node2 ddp-train "${train[@]}" --steps 1 --shard hybrid
  [[ $output == *"the node of rank 0 has "*" ranks and that of rank "*"srun --ntasks-per-node"* ]]
}

@test "a node whose link is cut is named within seconds by default" {
  local manager job
  for manager in $managers; do
    rm -f ./*
    timeout -k 5 90 "${step[@]}" --mpi="$manager" --kill-on-bad-exit=0 "$build_dir/tests/comm_ranks" barriers 60 "$work" > out 2>&1 3>&- &
    job=$!
    wait_until 60 test -s pid.0 -a -s pid.1 -a -s pid.2
    ip -n ddp-controller link set dev node2 down # node2's port on the switch
    wait_until 60 grep -qE '^comm_ranks: ' out || true
    ip -n ddp-controller link set dev node2 up
    cat out
    grep -qE '^comm_ranks: rank 1 \(node2, process [0-9]+\) has been silent for 8 s, and the machine does not answer: .*' out
    scancel --user=root
    wait "$job" || true
    wait_until 60 assert_nodes_in_service
  done
}

# Messages of the error channel queue behind data on the leader's link for longer than the allowed
# silence.
# bats test_tags=full
@test "a slow link of the leader does not stop the run" {
  local manager
  for manager in $managers; do survives_slow_link "$manager"; done
}
survives_slow_link() { # --mpi=
  rm -f ./*
  timeout -k 5 90 "${step[@]}" --mpi="$1" --kill-on-bad-exit=0 "$build_dir/tests/comm_ranks" barriers 20 "$work" > out 2>&1 3>&- &
  local job=$!
  wait_until 60 test -s pid.0 -a -s pid.1 -a -s pid.2
  local slow=(root tbf rate 64kbit burst 4kb latency 800ms)
  "$cluster" exec node1 -- tc qdisc add dev eth0 "${slow[@]}"
  ip netns exec ddp-controller tc qdisc add dev node1 "${slow[@]}" # node1's port on the switch
  sleep 12
  "$cluster" exec node1 -- tc -s qdisc show dev eth0 > queue
  "$cluster" exec node1 -- tc qdisc del dev eth0 root
  ip netns exec ddp-controller tc qdisc del dev node1 root
  cat queue
  grep -qE '(dropped|overlimits) [1-9]' queue # the link was too slow for the data
  wait "$job" || { cat out; false; }
  grep -qx 'all is well' out
}
