#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-check with real faults on a real SLURM, and the recipes for administrators.
# tests/bench/check_faults repeats the full table of faults many times.

bats_require_minimum_version 1.5.0
load common

# recipe NAME: prints the path of a program that runs a recipe as slurmd does, but for this cluster.
recipe() {
  local wrapper=$directory/$1
  printf '#!/bin/sh\nSLURM_CONF=%s exec %s\n' "/run/slurm-ddp-check.conf" "$build_dir/jobscripts/$1" > "$wrapper"
  chmod 755 "$wrapper"
  echo "$wrapper"
}

setup_file() {
  directory=$(mktemp -d /var/tmp/slurm-ddp-recipes.XXXXXX)
  chmod 755 "$directory"
  export directory
  printf '%s\n' "Prolog=$(recipe check_prolog)" PrologFlags=Alloc \
    "HealthCheckProgram=$(recipe check_health)" HealthCheckInterval=2 > "$directory/extra"
  cluster_up 5 --slurm-conf-extra "$directory/extra"
  [ "$cluster_mode" = netns ] || skip "plain mode: the nodes do not have their own links"
  ln -sfn "$SLURM_CONF" /run/slurm-ddp-check.conf
}
teardown_file() {
  cluster_down
  rm -rf "$directory" /run/slurm-ddp-check.conf
}

setup() {
  cd "$work"
  rm -rf ./*
}
teardown() {
  for number in 1 2 3 4; do
    "$cluster" exec node$number -- ip link delete rail1 2> /dev/null || true
    "$cluster" exec node$number -- ip link delete rail2 2> /dev/null || true
  done
  "$cluster" exec node4 -- nft delete table inet loss 2> /dev/null || true
  "$cluster" exec node3 -- ip link set eth0 mtu 1500
}

# The measured speeds of five nodes on one or two CPUs are noise, so with the usual limits, the
# verdict is correctly UNKNOWN. With these limits, a node is slow only if it has less than a tenth
# of the others' speed, as in other tests.
any_speed=(--slow-warning 0.9 --slow-critical 0.9)

# MPI connects the tasks without a plan.
connected=()
has_pmix || connected=(--ddp)

check() { check_by ddp-check "$@"; }
check_by() { srun "${connected[@]}" --kill-on-bad-exit=0 --wait=20 -N5 --ntasks-per-node=1 "$1" net "${@:2}"; }

# Prints the findings that are not OK, one per line: check, node, peer.
wrong() {
  python3 -c 'import json
for f in json.load(open("out/verdict.json"))["findings"]:
    if f["severity"] != "OK": print(f["check"], f["subject"]["node"], f["subject"]["peer"])' | sed 's/ *$//' | sort
}

@test "healthy nodes: no findings, and the files name the nodes to run on" {
  run check "${any_speed[@]}" --mib 8 --want 4 --out out
  [ "$status" -eq 0 ] || { echo "$output" && false; }
  [ -z "$(wrong)" ]
  [ ! -s out/exclude.txt ]
  [ "$(cat out/good_hostlist.txt)" = 'node[1-4]' ]
  [[ $output == *'4 nodes wanted, 5 given, 0 left out: run on these 4: node[1-4]'* ]]
  grep -q '"event":"tcp"' out/events.jsonl
  grep -q '<svg class="map"' out/report.html
}

# bats test_tags=full
@test "a lossy link between two nodes and a node with a different MTU at the same time" {
  "$cluster" exec node3 -- ip link set eth0 mtu 1400
  sender=$("$cluster" exec node4 -- getent ahostsv4 node2 | awk '{ print $1; exit }')
  "$cluster" exec node4 -- nft "add table inet loss; add chain inet loss in { type filter hook input priority 0; };
    add rule inet loss in ip saddr $sender numgen random mod 100 < 5 drop"
  # Segmentation offload sends 4 MiB as only 64 packets, which all arrive in one measurement of 27.
  run -2 check "${any_speed[@]}" --mib 16 --no-mpi --out out
  [ "$(wrong)" = $'net.mtu node3\nnet.path_mtu node3\ntcp.loss node2 node4' ]
  [ ! -s out/exclude.txt ] # neither end is known to be bad, and MTUs are only a warning
}

# bats test_tags=full
@test "the MTU of a path is that of the interface that its route takes" {
  "$cluster" exec node2 -- ip link add link eth0 name rail1 mtu 1400 type macvlan mode bridge
  "$cluster" exec node2 -- ip address add 172.31.1.2/24 dev rail1
  "$cluster" exec node2 -- ip link set rail1 up
  receiver=$("$cluster" exec node2 -- getent ahostsv4 node3 | awk '{ print $1; exit }')
  "$cluster" exec node2 -- ip route add "$receiver/32" dev rail1 src "$("$cluster" exec node2 -- getent ahostsv4 node2 | awk '{ print $1; exit }')"
  run check "${any_speed[@]}" --mib 1 --no-mpi --out out
  wrong > found
  run ! grep mtu found
  grep -q '"check": *"net.path_mtu"' out/verdict.json
}

@test "a node whose jobs would load a different NCCL is named" {
  mkdir 2.18.3 2.21.5
  for version in *; do
    touch "$version/libnccl.so.$version"
    ln -s "libnccl.so.$version" "$version/libnccl.so.2"
  done
  # shellcheck disable=SC2016 # the program's own variables
  printf '%s\n' '#!/bin/sh' 'version=2.18.3' '[ "$SLURMD_NODENAME" = node2 ] && version=2.21.5' \
    'LD_LIBRARY_PATH=$PWD/$version exec ddp-check "$@"' > program
  chmod 755 program
  run -1 check_by ./program "${any_speed[@]}" --mib 1 --no-mpi --out out
  [ "$(wrong)" = 'drift.library.libnccl node2' ]
  grep -q '4 of 5 nodes have libnccl.so.2.18.3' out/report.md
}

# bats test_tags=full
@test "a rail that is slow on one node is named" {
  for number in 1 2 3 4; do
    for rail in 1 2; do
      "$cluster" exec node$number -- ip link add link eth0 name rail$rail type macvlan mode bridge
      "$cluster" exec node$number -- ip address add "172.31.$rail.$number/24" dev rail$rail
      "$cluster" exec node$number -- ip link set rail$rail up
    done
  done
  "$cluster" exec node3 -- tc qdisc replace dev rail2 root tbf rate 40mbit burst 64kb latency 200ms
  run -2 srun "${connected[@]}" --kill-on-bad-exit=0 --wait=20 -N4 --ntasks-per-node=1 ddp-check net --mib 2 \
    --no-mpi "${any_speed[@]}" --rails rail1,rail2 --out out
  [ "$(wrong)" = 'tcp.send node3' ] || { echo "$output" && false; }
  [[ $output == *'CRITICAL node3 rail2 tcp.send: '* ]]
  python3 -c 'import json
pairs = json.load(open("out/verdict.json"))["measurements"]["tcp_rail1"]
assert {p["a_via"].split(".")[0] for p in pairs} == {"rail1 172"}, pairs'
}

@test "--act drains bad nodes and does not touch nodes drained for another reason" {
  scontrol update nodename=node5 state=drain reason='my own'
  run -2 srun --ddp --kill-on-bad-exit=0 -w 'node[1-4]' -N4 --ntasks-per-node=1 \
    ddp-check net --no-mpi --mib 1 --slow-warning 0.9 --slow-critical 0.9 --act --inject corrupt:node2
  [[ $output == *'node2: drained, ddp-check:tcp.data'* ]]
  [ "$(sinfo -h -n node2 -o %E)" = 'ddp-check:tcp.data' ]
  # ddp-check drains again only nodes that it drained itself, and keeps any other reason.
  scontrol update nodename=node2 state=resume
  scontrol update nodename=node2 state=drain reason='a person'
  run "$cluster" exec node2 -- env SLURM_CONF="$SLURM_CONF" PATH="$PATH" "$build_dir/bin/ddp-check" \
    node --name node2 --dir /nowhere --act
  [[ $output == *'node2: not touched, already drained for another reason: a person'* ]]
  [ "$(sinfo -h -n node2 -o %E)" = 'a person' ]
  scontrol update nodename=node2 state=resume
  scontrol update nodename=node5 state=resume
}

reason_is_ours() { [[ $(sinfo -h -n node4 -o %E) == 'ddp-check:storage.shm'* ]]; }

@test "HealthCheckProgram drains a node that became bad, and the prolog keeps jobs away" {
  run -0 "$cluster" exec node4 -- env -i "$directory/check_prolog"
  "$cluster" exec node4 -- mount -o remount,size=16m /dev/shm
  run -1 "$cluster" exec node4 -- env -i "$directory/check_prolog"
  wait_until 60 reason_is_ours
  run ! srun --immediate=2 -w node4 hostname
  "$cluster" exec node4 -- mount -o remount,size=1g /dev/shm
  wait_until 60 srun --immediate=2 -w node4 hostname # resumed after three clean checks
}

node4_is_idle() { [ "$(sinfo -h -n node4 -o %T)" = idle ]; }

# The disk of node4 is filled while a job runs there, and stays full after it.
@test "space that a job may use does not drain its node; what it leaves behind does" {
  prolog_passes() { "$cluster" exec node4 -- env -i "$@" "$directory/check_prolog"; }
  "$cluster" exec node4 -- mount -o remount,size=160m /dev/shm
  sbatch --quiet -w node4 --output=/dev/null --wrap 'head -c 120m /dev/zero > /dev/shm/job; touch filled; sleep 60'
  wait_until 60 test -e filled
  prolog_passes
  prolog_passes SLURM_JOB_ID=999999 SLURM_SCRIPT_CONTEXT=prolog_slurmd
  sleep 5 # two health checks
  [ "$(sinfo -h -n node4 -o %E)" = none ]
  scancel --user=root --nodelist=node4
  wait_until 60 reason_is_ours
  run ! prolog_passes
  "$cluster" exec node4 -- rm /dev/shm/job
  "$cluster" exec node4 -- mount -o remount,size=1g /dev/shm
  wait_until 60 node4_is_idle
}
