#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Where SLURM has no process manager for MPI, plain `srun --ddp` connects ranks over TCP. What faults do there is in
# faults.bats.

bats_require_minimum_version 1.5.0
load common
load ../ranks/training

setup_file() {
  cluster_up 2 --mpi-default none
  export OMP_NUM_THREADS=1
}
teardown_file() { cluster_down; }

setup() {
  cd "$work"
  rm -rf ./*
}

train=(ddp-train --model mlp --data digits --optimizer adamw --checkpoint-dir)
said="there is no process manager for MPI, so ranks are connected over TCP"

@test "a training has the bits of one over MPI, is killed, and resumes" {
  run -0 srun --ddp --mpi=pmix -N2 -n4 "${train[@]}" over-mpi --steps 60
  [[ $output != *TCP* ]]
  local expected
  expected=$(grep -o 'parameters 0x[0-9a-f]*' <<< "$output")

  srun --ddp -N2 -n4 "${train[@]}" over-tcp --steps 100000 --checkpoint-every 5 > out 2>&1 3>&- &
  local job=$!
  wait_until 60 compgen -G "over-tcp/step-*"
  pkill -KILL --newest --full "^[^ ]*ddp-train .*over-tcp"
  local status=0
  wait "$job" || status=$?
  cat out
  [ "$status" -ne 0 ]
  [ "$(grep -c "$said" out)" -eq 1 ]
  grep -qE '^ddp-train: rank [0-9] \(node[12], process [0-9]+\) exited unexpectedly' out

  for step in over-tcp/step-*; do
    [ "$((10#${step##*-}))" -le 55 ] || rm -r "$step"
  done
  run -0 srun --ddp -N2 -n4 "${train[@]}" over-tcp --steps 60
  [[ $output == *"$expected"* ]]
}

@test "--backend says what it needs, and tcp may be asked for beside PMIx" {
  run -0 srun --ddp --mpi=pmix -N2 -n2 "${train[@]}" a --steps 2 --backend tcp
  run -2 srun --ddp -N2 -n2 "${train[@]}" b --steps 2 --backend mpi
  [[ $output == *"srun started 2 tasks without the PMIx server through which MPI connects them; add --mpi=pmix"* ]]
  run -2 srun --mpi=pmix -N2 -n2 "${train[@]}" c --steps 2 --backend tcp
  [[ $output == *"ranks that connect over TCP need a launch plan, but MASTER_ADDR is not set; start the step with srun --ddp"* ]]
}

@test "ddp-check net says that MPI is not used, measures collectives over TCP, and names the node that corrupts them" {
  run srun --ddp -N2 -n4 ddp-check net --mib 1 --json net.json
  [[ $status -le 1 && $output == *" allreduce_busbw_GBps="*" reducescatter_busbw_GBps="*" allgather_busbw_GBps="* ]]
  run -0 python3 -c '
import json
for f in json.load(open("net.json"))["findings"]: print(f["check"], f["severity"], f["value"])'
  [[ $output == *"mpi.pairs OK not used"*"tcp.all_reduce "*"tcp.all_gather "* ]]
  run -2 srun --ddp -N2 --ntasks-per-node=1 ddp-check net --mib 1 --min-busbw 1000 --inject corrupt:node2
  [[ $output == *"CRITICAL tcp.all_reduce:"*"at least 1e+03 GB/s"* ]] || { echo "$output" && false; }
  [[ $output == *"tcp.all_gather_data"* ]]
}

@test "a port that another program has, or blocks, is named on all ranks" {
  "$cluster" exec node1 -- python3 -m http.server 23456 > server 2>&1 3>&- &
  local server=$!
  wait_until 60 "$cluster" exec node1 -- python3 -c 'import socket; socket.create_connection(("127.0.0.1", 23456))'
  run timeout 120 srun --ddp=master_port=23456 -N2 -n4 "${train[@]}" a --steps 2
  kill "$server"
  [ "$status" -ne 0 ] && [ "$status" -ne 124 ]
  [[ $output == *"rank 0 on node1: rank 0 cannot listen at port 23456 of the launch plan: Address already in use"* ]]
  [ "$(grep -cE 'rank [123] on node[12]: .* accepts the connection but does not answer; another program uses that port' <<< "$output")" -ge 1 ]
}

# SLURM 24.11 and later give a batch script a number of a step, which rank 0 must not end.
@test "if a rank of mpirun is killed in a batch script, the script continues" {
  printf '%s\n' '#!/bin/bash' \
    'mpirun --allow-run-as-root --oversubscribe -n 2 ddp-launch -- ddp-train --backend tcp --model mlp --data digits --steps 100000 \
      --checkpoint-dir mine --checkpoint-every 5' 'echo after' > job
  sbatch --parsable -N1 -n2 -o log job > number
  wait_until 60 compgen -G "mine/step-*"
  pkill -KILL --newest --full "^[^ ]*ddp-train .*--checkpoint-dir mine"
  wait_until 60 job_is_over "$(cat number)"
  cat log
  [ "$(tail -n 1 log)" = after ]
}

@test "in a container with a network of its own, one note says that no other node reaches rank 0" {
  run -0 srun -N2 -n2 unshare --net ddp-launch -- true
  [ "$(grep -c '^ddp: note: ' <<< "$output")" -eq 1 ]
  [[ $output == *"rank 0 has no network interface but lo, as in a container with a network of its own"* ]]
}

@test "a rank that is started by hand says what is wrong with its variables" {
  export MASTER_ADDR=127.0.0.1 MASTER_PORT=23457
  local by_hand=(ddp-train --model mlp --data digits --steps 3)
  unset SLURM_CONF
  run -2 env RANK=2 WORLD_SIZE=2 "${by_hand[@]}"
  [[ $output == *"rank 2 on "*"RANK=2 is not below WORLD_SIZE=2; start the step with srun --ddp, or the program with ddp-launch"* ]]
  run -2 env RANK=1 WORLD_SIZE=x "${by_hand[@]}"
  [[ $output == *"rank 1 on "*"WORLD_SIZE='x' is not a number"* ]]
  run -2 env -u MASTER_PORT RANK=1 "${by_hand[@]}" --backend tcp
  [[ $output == *"rank 1 on "*"MASTER_PORT is not set"* ]]
}

@test "rank 0 that is killed is named by the others" {
  export MASTER_ADDR=127.0.0.1 MASTER_PORT=23458 WORLD_SIZE=3
  local by_hand=(ddp-train --model mlp --data digits --steps 100000 --checkpoint-dir mine --checkpoint-every 5)
  unset SLURM_CONF
  RANK=1 "${by_hand[@]}" > one 2>&1 3>&- &
  local one=$!
  RANK=2 "${by_hand[@]}" > two 2>&1 3>&- &
  local two=$!
  RANK=0 "${by_hand[@]}" > zero 2>&1 3>&- &
  wait_until 60 compgen -G "mine/step-*"
  kill -KILL $!
  local each status
  for each in "$one" "$two"; do
    status=0
    wait "$each" || status=$?
    [ "$status" -ne 0 ]
  done
  cat one two
  [ "$(cat one two | grep -cE '^ddp-train: rank 0 \(.*, process [0-9]+\) exited unexpectedly')" -eq 1 ]
}

@test "programs without SLURM connect by the variables of a plan" {
  export MASTER_ADDR=127.0.0.1 MASTER_PORT=23457 WORLD_SIZE=2
  RANK=1 env -u SLURM_CONF "$build_dir/bin/ddp-train" --model mlp --data digits --steps 3 > one 2>&1 3>&- &
  run -0 env RANK=0 "$build_dir/bin/ddp-train" --model mlp --data digits --steps 3
  wait $!
  [[ $output == *"2 ranks"* ]] || [[ $output == *"ranks 2"* ]] || { echo "$output"; cat one; false; }
}
