#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Where SLURM has no process manager for MPI, plain `srun --ddp` connects ranks over TCP. What faults do there is in
# faults.bats.

bats_require_minimum_version 1.5.0
load common
load ../ranks/training

setup_file() {
  cluster_up 3 --mpi-default none
  export OMP_NUM_THREADS=1
}
teardown_file() { cluster_down; }

setup() {
  cd "$work"
  rm -rf ./*
}

train=(ddp-train --model mlp --data digits --optimizer adamw --checkpoint-dir)
said="there is no process manager for MPI, so ranks are connected over TCP"

# Runs a program with four ranks on two nodes over MPI. Debian's Open MPI 6 uses lo only, if nothing is said.
over_mpi() {
  if has_pmix; then
    srun --ddp --mpi=pmix -N2 -n4 "$@"
  else
    OMPI_MCA_btl_tcp_if_include=eth0 salloc -Q -N2 -n4 mpirun --allow-run-as-root --bind-to none "$@"
  fi
}

@test "a training has the bits of one over MPI, is killed, and resumes" {
  run -0 over_mpi "${train[@]}" over-mpi --steps 60
  [[ $output == *"4 over mpi"* && $output != *TCP* ]]
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
  grep -qE '^ddp-train: rank [0-9] \(node[1-3], process [0-9]+\) exited unexpectedly' out

  for step in over-tcp/step-*; do
    [ "$((10#${step##*-}))" -le 55 ] || rm -r "$step"
  done
  run -0 srun --ddp -N2 -n4 "${train[@]}" over-tcp --steps 60
  [[ $output == *"$expected"* ]]
}

@test "--backend says what it needs, and tcp may be asked for beside PMIx" {
  need_pmix
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
  [ "$(grep -cE 'rank [123] on node[1-3]: .* accepts the connection but does not answer; another program uses that port' <<< "$output")" -ge 1 ]
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

# three_nodes ADDRESS: three ranks of three nodes, started by hand; what they say is in the files 0 to 2.
three_nodes() {
  local rank pids=() status=0
  for rank in 0 1 2; do
    "$cluster" exec "node$((rank + 1))" -- env -u SLURM_CONF RANK=$rank WORLD_SIZE=3 MASTER_ADDR="$1" MASTER_PORT=23459 \
      "${by_hand[@]}" > $rank 2>&1 3>&- &
    pids+=($!)
  done
  for rank in "${pids[@]}"; do wait "$rank" || status=$?; done
  cat 0 1 2
  return $status
}
# on_node N RULE: drops what the rule of nft matches, where the node receives or sends.
on_node() {
  printf 'table inet test {\n chain in { type filter hook input priority 0; %s drop; }\n chain out { type filter hook output priority 0; %s drop; }\n}\n' \
    "$2" "$2" | "$cluster" exec "node$1" -- nft -f -
}
address_of() { "$cluster" exec "$1" -- ip -4 -oneline address show eth0 | grep -oE '10(\.[0-9]+){3}' | head -n 1; } # node

@test "ranks connect over IPv6, and by another network where one is blocked; lost large packets end them" {
  [ "$cluster_mode" = netns ] || skip "plain mode: the nodes do not have their own networks"
  local node by_hand=(timeout 60 ddp-train --model mlp --data digits --steps 3)
  for node in 1 2 3; do
    "$cluster" exec node$node -- sh -c "sysctl -q net.ipv6.conf.eth0.disable_ipv6=0 && ip address add fd00::$node/64 dev eth0 nodad"
    on_node $node 'meta nfproto ipv4 oifname "eth0"'
  done
  run -0 three_nodes fd00::1
  for node in 1 2 3; do "$cluster" exec node$node -- nft flush ruleset; done

  # node2 and node3 reach node1 over IPv4, but each other only over IPv6.
  on_node 3 "ip saddr $(address_of node2)"
  run -0 three_nodes "$(address_of node1)"
  "$cluster" exec node3 -- nft flush ruleset

  on_node 2 'oifname "eth0" meta length > 1400'
  run ! three_nodes fd00::1
  [[ $output == *"rank 1 (node2, "*"its large packets are lost there (ddp-check net tells)"* ]]
}

# bats test_tags=full
@test "a name of rank 0 that is unknown is an error soon, and a long wait is told" {
  run ! timeout 300 srun --ddp=master_addr=no-such-name -N2 -n2 "${train[@]}" a --steps 2
  [ "$status" -ne 124 ]
  [[ $output == *"1 of 2 ranks did not connect to rank 0 at no-such-name, port "*" yet: 1; waiting for at most 600 s"* ]]
  [[ $output == *"rank 1 on node2: MASTER_ADDR='no-such-name' is unknown on this machine"* ]]
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
