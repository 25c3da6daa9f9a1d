#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-check net with several processes: healthy, and with every fault that it can name, injected by
# the check itself or caused from outside. Ranks on this machine count as nodes (--pretend-nodes).
# The faults are large, because two cores shared by four ranks are a noisy network.

bats_require_minimum_version 1.5.0

load training

setup() {
  training_setup
  check=$bin/ddp-check
}

# In these tests, a node is slow only if it has less than a tenth of the others' speed.
options=(--mib 8 --slow-warning 0.9 --slow-critical 0.9 --deadline 20 --pair-limit 20
  --json net.json --exclude-file exclude.txt)

# net N ARGS...: runs the check with N ranks that count as n1 to nN.
net() {
  local n=$1
  shift
  timeout 90 mpirun -n "$n" "$check" net --pretend-nodes "n[1-$n]" "${options[@]}" "$@"
}

# Processes of this test that were killed need a moment to end on a busy machine.
nothing_runs_with() { # TEXT
  for _ in {1..600}; do
    is_running "$1" || return 0
    sleep 0.1
  done
  echo "left behind: $(processes "$1")" && return 1
}

verdict() { grep '^ddp-check net ' <<< "$output"; }

# json EXPRESSION: evaluates a Python expression over the report `r`.
json() { python3 -c "import json; r = json.load(open('net.json')); print($1)"; }

# Prints the number of measured pairs of nodes. On a busy machine, the check may measure a pair
# twice.
pairs() { json "len({(p['a'], p['b']) for p in r['measurements']['$1']})"; }

# Prints the findings of check $1: node, peer and severity, one per line.
findings() {
  json "'\n'.join(' '.join(filter(None, [f['subject']['node'], f['subject']['peer'], f['severity']]))
    for f in r['findings'] if f['check'] == '$1')"
}


# task RANK SIZE ARGS...: runs one task of a SLURM step, started as SLURM would start it. Does not
# use mpirun, which would kill the other tasks when one dies.
task() {
  local rank=$1 size=$2
  shift 2
  SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$size SLURM_STEP_NUM_NODES=$size \
    SLURM_STEP_NODELIST="n[1-$size]" SLURM_STEP_TASKS_PER_NODE="1(x$size)" \
    SLURM_PROCID=$rank SLURM_LOCALID=0 SLURM_NODEID=$rank SLURM_GTIDS=$rank \
    SLURMD_NODENAME=n$((rank + 1)) MASTER_ADDR=127.0.0.1 \
    timeout 60 "$check" net --no-mpi "${options[@]}" "$@"
}

@test "a healthy step is OK, on every rank, with a report and an empty exclude list" {
  run -0 --separate-stderr net 4
  [ "$(wc -l <<< "$output")" -eq 1 ]
  [[ $(verdict) == "ddp-check net OK - 4 nodes, 4 tasks; TCP "*"; MPI "*"; all-reduce "* ]]
  [ -f exclude.txt ] && [ ! -s exclude.txt ]
  [ "$(json "r['schema'], r['severity'], r['exit_code'], r['bad_nodes']")" = \
    "slurm-ddp/check/2 OK 0 []" ]
  [ "$(pairs tcp)" = 6 ]
  [ "$(pairs mpi)" = 6 ]
  [ "$(json "[r['measurements'][c]['factor'] for c in ('all_reduce', 'reduce_scatter', 'all_gather')]")" = \
    "[1.5, 0.75, 0.75]" ]
  [[ $(verdict) == *"; all-reduce over MPI "*" GB/s busbw, reduce-scatter "*", all-gather "*", all-reduce of 8 bytes "*" us |"* ]]
  # Every node must have every measurement, and none may be counted twice.
  for check in tcp.send tcp.receive mpi.send mpi.receive; do
    [ "$(findings $check)" = $'n1 OK\nn2 OK\nn3 OK\nn4 OK' ]
  done
}

# bats test_tags=full
@test "an odd number of nodes, and two tasks on a node" {
  run -0 net 5
  [ "$(pairs tcp)" = 10 ]
  run -0 timeout 90 mpirun -n 4 "$check" net --pretend-nodes 'n[1-2]' "${options[@]}"
  [[ $(verdict) == *"2 nodes, 4 tasks"*"2 nodes are too few to compare with each other"* ]]
}

@test "a slow node is named over TCP and over MPI" {
  run -2 net 4 --inject slow:n3:0.003
  [ "$(cat exclude.txt)" = n3 ]
  # On a busy machine the speed in one direction may be too uncertain for a verdict.
  local transport direction named
  for transport in tcp mpi; do
    named=
    for direction in send receive; do
      [[ $(findings $transport.$direction | paste -sd ' ') =~ ^"n1 OK n2 OK n3 "(OK|UNKNOWN|CRITICAL)" n4 OK"$ ]]
      [ "${BASH_REMATCH[1]}" != CRITICAL ] || named=$direction
    done
    [ -n "$named" ]
    [[ $(verdict) == "ddp-check net CRITICAL - "*"n3 ($transport.$named)"* ]]
  done
}

@test "corrupt data names the node in every affected test" {
  run -2 net 4 --inject corrupt:n2
  [ "$(cat exclude.txt)" = n2 ]
  for check in tcp.data mpi.data mpi.all_reduce_data mpi.reduce_scatter_data mpi.all_gather_data; do
    [ "$(findings $check)" = "n2 CRITICAL" ]
  done
}

# bats test_tags=full
@test "faults between two nodes blame the link between them, and neither node" {
  run -2 net 4 --no-mpi --inject slow:n2+n4:0.003 --want 3
  [ "$(findings tcp.link)" = "n2 n4 CRITICAL" ]
  [[ $output == *"3 nodes wanted, 4 given, 1 left out (n4): run on these 3: n[1-3]"* ]]
  [ ! -s exclude.txt ]
  run -2 net 4 --inject corrupt:n1+n3
  [ "$(findings tcp.data)" = "n1 n3 CRITICAL" ]
  [ "$(findings mpi.data)" = "n1 n3 CRITICAL" ]
  [ ! -s exclude.txt ]
  run -3 net 2 --inject slow:n1+elsewhere:0.5
  [[ $output == *"names the node 'elsewhere', which is not a node of this step"* ]]
}

# bats test_tags=full
@test "corrupt data between two nodes blames the link, and excludes neither" {
  run -2 net 2 --inject corrupt:n2
  [ "$(findings tcp.data)" = "n1 n2 CRITICAL" ]
  [ "$(findings mpi.all_reduce_data)" = "n2 n1 CRITICAL" ]
  [ ! -s exclude.txt ]
}

# bats test_tags=full
@test "a node that hangs in the TCP tests is named, and the check finishes" {
  run -2 net 4 --inject hang:n2 --pair-limit 2
  [ "$(cat exclude.txt)" = n2 ]
  [ "$(findings net.answer)" = "n2 CRITICAL" ]
  [ "$(findings mpi.pairs)" = UNKNOWN ]
  [ "$(findings tcp.send)" = $'n1 OK\nn3 OK\nn4 OK' ]
}

# bats test_tags=full
@test "a node that hangs inside MPI is named, and the check finishes" {
  run -2 net 4 --inject hang:n2:mpi --pair-limit 2
  [ "$(cat exclude.txt)" = n2 ]
  [[ $output == *"n2 net.answer"*"rank 1, during MPI round 1 of 3: it stopped answering"* ]]
}

# bats test_tags=full
@test "a fault of rank 0's node is found like any other" {
  run -2 net 3 --inject hang:n1 --pair-limit 2
  [ "$(cat exclude.txt)" = n1 ]
}

@test "a node that never connects is identified when the deadline expires; the others are measured" {
  run -2 net 4 --inject missing:n2 --deadline 3
  [ "$(cat exclude.txt)" = n2 ]
  [ "$(findings net.missing)" = "n2 CRITICAL" ]
  [ "$(findings tcp.send)" = $'n1 OK\nn3 OK\nn4 OK' ]
}

# bats test_tags=full
@test "if most nodes are silent, none of them is named: rank 0's node may be the one that is cut off" {
  run -2 net 4 --inject missing:n2,missing:n3,missing:n4 --deadline 3 --no-mpi
  [ "$(findings net.missing)" = CRITICAL ]
  [[ $output == *"3 of 4 nodes: n2, n3, n4; so many that rank 0's node may be"* ]]
  [[ $output != *"scontrol update"* ]]
  [ ! -s exclude.txt ]
  run -2 net 4 --inject hang:n2,hang:n3,hang:n4 --pair-limit 2 --no-mpi
  [ "$(findings net.answer)" = CRITICAL ]
  [ ! -s exclude.txt ]
}

# bats test_tags=full
@test "several faults at once are all named" {
  run -2 net 5 --inject corrupt:n2,missing:n5 --inject hang:n4 --deadline 3 --pair-limit 2
  [ "$(sort exclude.txt)" = $'n2\nn4\nn5' ]
}

# bats test_tags=full
@test "with a hanging node and another fault, verdict and files are still written" {
  run -2 net 6 --inject corrupt:n3 --inject hang:n5 --pair-limit 2 --out out
  [ "$(sort exclude.txt)" = $'n3\nn5' ]
  [ "$(cat out/exclude.txt)" = 'n[3,5]' ]
  [ "$(json "r['finished']")" = True ]
}

# bats test_tags=full
@test "a stopped process is named" {
  net 4 --inject missing:n4 --deadline 4 --pair-limit 2 > out.txt 2> err.txt &
  local job=$!
  for _ in $(seq 600); do grep -q '3 of 4 tasks' err.txt && break || sleep 0.1; done
  kill -STOP "$(pid_of_rank 1 "$check")"
  local status=0
  wait $job || status=$?
  [ "$status" -eq 2 ]
  [ "$(sort exclude.txt)" = $'n2\nn4' ]
  [ "$(findings net.answer)" = "n2 CRITICAL" ]
}

# bats test_tags=full
@test "a leader that was suspended blames no other node" {
  # Exchanges of this size keep the rounds going for a second or more, so the leader is measuring
  # when the signal arrives.
  net 4 --no-mpi --mib 64 --pair-limit 5 > out.txt 2> err.txt &
  local job=$!
  for _ in $(seq 600); do grep -q 'TCP round' err.txt && break || sleep 0.05; done
  local leader
  leader=$(pid_of_rank 0 "$check")
  kill -STOP "$leader"
  sleep 8
  kill -CONT "$leader"
  local status=0
  wait $job || status=$?
  cat out.txt
  [ "$status" -eq 3 ]
  [ "$(findings net.suspended)" = UNKNOWN ]
  [ -z "$(findings tcp.exchange)$(findings net.answer)" ]
  [ ! -s exclude.txt ]
}

@test "tasks started by SLURM without MPI find each other, and all exit with the verdict" {
  task 0 3 > out0.txt &
  local leader=$!
  task 1 3 > out1.txt &
  local second=$!
  run -0 --separate-stderr task 2 3
  [ -z "$output" ] # only the leader may print
  wait $leader
  wait $second
  grep -q '^ddp-check net OK - 3 nodes, 3 tasks; TCP ' out0.txt
}

@test "a task that is killed is named" {
  task 0 3 > out0.txt 2> err0.txt &
  local leader=$!
  task 1 3 2> err1.txt &
  for _ in $(seq 600); do grep -q '2 of 3 tasks' err0.txt && break || sleep 0.1; done
  kill -KILL "$(pid_of_rank 1 "$check")"
  local status=0
  run -2 task 2 3
  wait $leader || status=$?
  [ "$status" -eq 2 ]
  [ "$(cat exclude.txt)" = n2 ]
  [ "$(findings net.answer)" = "n2 CRITICAL" ]
}

@test "when the leader is killed, every task reports it and fails" {
  task 0 3 2> err0.txt &
  local leader=$!
  for _ in $(seq 600); do grep -q 'waiting for 3' err0.txt && break || sleep 0.1; done
  task 1 3 2> err1.txt &
  local other=$!
  for _ in $(seq 600); do grep -q '2 of 3 tasks' err0.txt && break || sleep 0.1; done
  kill -KILL "$(pid_of_rank 0 "$check")"
  local status=0
  wait $other || status=$?
  [ "$status" -eq 2 ]
  grep -q '^ddp-check: n2 (rank 1) has no verdict: the other end closed the connection' err1.txt
}

@test "tasks that MPI does not connect are distinguished from a broken network" {
  # Starts two tasks of one step without a process manager, as srun does without PMIx.
  declare -f task | sed 's/--no-mpi//' > with_mpi.bash
  # shellcheck disable=SC1091
  source with_mpi.bash
  task 0 2 > out.txt 2>&1 &
  local leader=$!
  local status=0
  run -2 task 1 2
  wait $leader || status=$?
  [ "$status" -eq 2 ]
  grep -q "mpi.join: failed.*srun started 2 tasks without the PMIx server.*add --mpi=pmix" out.txt
  [ "$(findings tcp.send)" = $'n1 OK\nn2 OK' ]
  [ ! -s exclude.txt ]
}

@test "a port in use by another program gives a verdict, not a timeout" {
  python3 -c "
import socket, time
s = socket.create_server(('', 0), family=socket.AF_INET6, dualstack_ipv6=True)
print(s.getsockname()[1], flush=True)
time.sleep(60)" > port.txt &
  local holder=$!
  for _ in $(seq 600); do [ -s port.txt ] && break || sleep 0.1; done
  run -2 net 2 --port "$(cat port.txt)" --deadline 3
  kill $holder
  [[ $(verdict) == *"net.leader_port"* ]]
  [[ $output == *"Address already in use"* ]]
}

@test "one node alone is UNKNOWN, not OK, unless it is the whole job" {
  run -3 "$check" net "${options[@]}"
  [[ $(verdict) == "ddp-check net UNKNOWN - "* ]]
  run -3 timeout 60 mpirun -n 2 "$check" net "${options[@]}"
  SLURM_JOB_NUM_NODES=1 run -0 task 0 1 --out out --want 1
  [[ $(verdict) == "ddp-check net OK - 1 node, 1 task; a job of one node uses no network"* ]]
  [ "$(cat out/good_hostlist.txt)" = n1 ]
  SLURM_JOB_NUM_NODES=8 run -3 task 0 1
  [ "$(findings net.pairs)" = UNKNOWN ]
}

# bats test_tags=full
@test "usage errors are UNKNOWN, reported once, and write nothing" {
  for mistake in --nonsense '--inject melt:n1' '--inject slow:n9:0.5' '--inject slow:n1:7' \
    '--pair-limit 0' '--mib 0' '--pretend-nodes n[1-' '--pretend-nodes n[1-9]' '--port 0' \
    '--slow-critical nan' '--deadline nan' '--expect-gbps -NaN'; do
    # shellcheck disable=SC2086
    run -3 --separate-stderr net 2 $mistake
    # mpirun of Open MPI 5 gives no key, which is told, too.
    [ "$(grep '^ddp-check: ' <<< "$stderr" | grep -vc 'no key for this step')" -eq 1 ] || { echo "$mistake: $stderr"; false; }
  done
  run -3 "$check"
  run -3 "$check" frobnicate
  [[ $output == "ddp-check: unknown command 'frobnicate'; use node, net or simulate" ]]
  [ ! -e net.json ]
}

@test "--help and --version work, and options can come from a file" {
  run -0 "$check" --help
  [[ $output == *"srun --mpi=pmix --ddp --ntasks-per-node=1 ddp-check net"*"3 UNKNOWN"* ]]
  run -0 "$check" net --help
  [[ $output == *"slow:NODE:FACTOR"* ]]
  run -0 "$check" --version
  [[ $output =~ ^ddp-check\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
  printf '[net]\ninject="missing:n2"\ndeadline=1\n' > check.ini
  run -2 timeout 90 mpirun -n 3 "$check" --config check.ini net --pretend-nodes 'n[1-3]' \
    --exclude-file exclude.txt
  [ "$(cat exclude.txt)" = n2 ]
}

@test "two outputs cannot be one file" {
  echo older > both.txt
  run -3 net 2 --no-mpi --json both.txt --exclude-file both.txt
  [[ $output == *"--json and --exclude-file both write the file both.txt; give each its own"* ]]
  [ "$(cat both.txt)" = older ]
  run -3 net 2 --no-mpi --out out --exclude-file out/exclude.txt
  [[ $output == *"--exclude-file and --out both write"* ]]
}

@test "a report that cannot be written is UNKNOWN for all tasks, and no older report is left" {
  echo old > exclude.txt
  run -3 net 2 --json /nonexistent/net.json
  [[ $output == *"ddp-check: cannot write /nonexistent/net.json"* ]]
  [ ! -s exclude.txt ] # must be rewritten, without bad nodes
}

# bats test_tags=full
@test "dropped packets, lost data and wrong clocks are reported by kind" {
  run -2 net 4 --no-mpi --inject mtu:n3:1400,skew:n2:-30,jump:n4:12,drop:n1:0.02
  [ "$(findings net.path_mtu)" = "n3 WARNING" ]
  [ "$(findings clock.offset)" = $'n1 OK\nn2 WARNING\nn3 OK\nn4 OK' ]
  [ "$(findings clock.jump)" = "n4 WARNING" ]
  [ "$(findings tcp.loss)" = "n1 CRITICAL" ]
  [ "$(cat exclude.txt)" = n1 ]
}

# bats test_tags=full
@test "the limits of checking two nodes are reported, and a known link rate lifts them" {
  run -0 net 2 --no-mpi
  [[ $(verdict) == *"slow nodes can be found with at least 4 nodes, or with --expect-gbps"* ]]
  run -2 net 2 --no-mpi --inject slow:n2:0.01 --expect-gbps 3
  [ "$(findings tcp.link_rate)" = "n1 n2 CRITICAL" ]
  run -2 net 3 --no-mpi --inject slow:n2:0.01 --expect-gbps 3
  [ "$(findings tcp.link_rate)" = "n2 CRITICAL" ]
}

@test "the files of --out, with spares for a bad node" {
  run -2 net 4 --no-mpi --out out --want 3 --inject corrupt:n2
  [ "$(cd out && echo *)" = "events.jsonl exclude.txt good_hostlist.txt report.html report.md verdict.json" ]
  [ "$(cat out/exclude.txt)" = n2 ]
  [ "$(cat out/good_hostlist.txt)" = 'n[1,3-4]' ]
  grep -q "scontrol update nodename='n2' state=drain reason='ddp-check:tcp.data'" out/report.md
  python3 - <<'PY'
import json, xml.etree.ElementTree as xml
events = [json.loads(line) for line in open("out/events.jsonl")]
assert len([e for e in events if e["event"] == "tcp"]) == 6, events
page = open("out/report.html").read()
xml.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
assert "http" not in page.replace("http-equiv", "") and "<script" not in page
assert page.count("<rect") == 12, page.count("<rect")  # every pair in both directions
PY
  run -2 net 4 --no-mpi --out out --want 5
  [[ $output == *"CRITICAL net.wanted: 4 nodes, expected 5 nodes"* ]]
  run -2 net 4 --no-mpi --out out --want 4 --inject corrupt:n2
  [[ $output == *"4 nodes wanted, 4 given, 1 left out (n2): only 3 are left"* ]]
  [ ! -s out/good_hostlist.txt ]
}

@test "a full file system below --out is UNKNOWN for all tasks, and is reported" {
  [ "$(id -u)" -eq 0 ] || skip "mounting needs root"
  declare -f net > net.bash
  mkdir full
  # shellcheck disable=SC2016  # for the inner shell
  run -3 unshare --mount -- bash -c 'mount -t tmpfs -o size=4k small full; check=$0; work=$1
    options=(--mib 1 --deadline 20 --slow-warning 0.9 --slow-critical 0.9); source net.bash
    net 2 --no-mpi --out full' "$check" "$work"
  [[ $output == *"ddp-check: cannot write full/verdict.json: writing failed: No space left on device"* ]]
}

# bats test_tags=full
@test "--act with a missing or hanging scontrol is UNKNOWN, and the cause is named" {
  mkdir bin
  PATH=$work/bin run -3 "$check" node --name here --dir /nowhere --act
  [[ $output == *"ddp-check: cannot start scontrol: No such file or directory"* ]]
  printf '#!/bin/sh\nexec /bin/sleep 60\n' > bin/scontrol
  chmod +x bin/scontrol
  PATH=$work/bin:$PATH run -3 timeout 60 "$check" node --name here --dir /nowhere --act
  [[ $output == *"ddp-check: scontrol did not respond; no further nodes were drained"* ]]
}

@test "findings from before MPI survive a step that is killed in MPI" {
  net 4 --inject corrupt:n3,hang:n2:mpi --pair-limit 60 > out.txt 2> err.txt &
  local job=$!
  for _ in $(seq 600); do grep -q 'MPI round' err.txt && break || sleep 0.1; done
  local pids rank
  pids=$(for rank in 0 1 2 3; do pid_of_rank $rank "$check"; done)
  # shellcheck disable=SC2086  # several process IDs
  kill -KILL $pids
  wait $job || true
  run ! verdict < out.txt
  [ "$(json "r['finished'], r['severity'], r['bad_nodes']")" = "False CRITICAL ['n3']" ]
  [ "$(findings net.finished)" = UNKNOWN ]
}

@test "the interfaces that carried the data are reported, according to the kernel's counters and the MPI library" {
  run -0 net 3
  [[ $(verdict) == *"; TCP "*" GB/s "*" through lo; MPI "* ]]
  [ "$(json "sorted({p['a_via'] for p in r['measurements']['tcp']})")" = "['lo 127.0.0.1']" ]
  # Open MPI 5 has its modules in its own library, which does not show them.
  ! mpirun --version | grep -q '(Open MPI) 4' || [[ $(json "r['measurements']['mpi_transport'][0]['modules']") == "pml "*"btl "* ]]
  [ "$(findings net.counters)" = $'n1 OK\nn2 OK\nn3 OK' ]
}

@test "rails are measured one by one, and a mistake of the option names no node" {
  run -3 net 3 --no-mpi --rails lo,nowhere0
  [ "$(pairs tcp_lo)" = 3 ]
  [ "$(pairs tcp_nowhere0)" = 0 ]
  [ "$(findings rail.address)" = $'OK\nUNKNOWN' ]
  [[ $output == *"UNKNOWN nowhere0 rail.address: none, expected up, with an address: no node has an interface nowhere0"* ]]
  [ ! -s exclude.txt ]
}

# bats test_tags=full
@test "RDMA with a fake ib_write_bw of perftest: measured, hung and missing" {
  export FAKE_RDMA=$work/rdma FAKE_RDMA_GBITS=96
  local fake=(--no-mpi --hca fake_0:1 --write-bw "$here/tests/unit/check/fake_ib_write_bw")
  mkdir rdma
  run -0 net 4 "${fake[@]}"
  [[ $(verdict) == *"; RDMA 12 GB/s over fake_0:1 (lowest 12)"* ]]
  [ "$(pairs verbs)" = 6 ]
  [ "$(findings verbs.send)" = $'n1 OK\nn2 OK\nn3 OK\nn4 OK' ]
  rm -r rdma/*
  FAKE_RDMA_GBITS=hang run -2 net 2 "${fake[@]}" --pair-limit 1
  [[ $output == *"n1 <-> n2 fake_0:1 verbs.exchange: failed"*"ib_write_bw on fake_0:1 did not finish in time"* ]]
  nothing_runs_with "$work/rdma"
  nothing_runs_with "fake_ib_write_bw -d fake_0"
  rm -r rdma/*
  FAKE_FAIL_DEV=fake_1 run -2 net 3 "${fake[@]}" --hca fake_1:1
  [[ $output == *"CRITICAL fake_1:1 verbs.exchange: failed"*"the cause is the network or a setting"* ]]
  [ ! -s exclude.txt ]
  run -0 net 2 --no-mpi --hca fake_0:1 --write-bw no_such_tool
  [[ $output == *"note: RDMA was not tested on n[1-2]: ib_write_bw is not installed; "* ]]
  [ "$(findings verbs.tool)" = $'n1 OK\nn2 OK' ]
  run -3 net 2 --no-mpi --hca fake_0:1 --write-bw no_such_tool --missing-tool unknown
  [ "$(findings verbs.tool)" = $'n1 UNKNOWN\nn2 UNKNOWN' ]
  run -0 net 2 --no-mpi --no-verbs --hca fake_0:1 --write-bw no_such_tool
}

# bats test_tags=full
@test "NCCL with a fake library and CUDA driver: measured, slow, corrupt, hung, failed and missing" {
  local library=$build/lib/libslurm_ddp_fake_nccl.so
  local fake=(--no-mpi --nccl "$library" --cuda "$library")
  run -0 net 4 "${fake[@]}"
  [[ $(verdict) == *"; NCCL "*" GB/s (lowest "* ]]
  [ "$(pairs nccl)" = 6 ]
  [ "$(findings nccl.send)" = $'n1 OK\nn2 OK\nn3 OK\nn4 OK' ]
  [ "$(json "sorted({p['a_via'] for p in r['measurements']['nccl']})")" = "['NET/Fake/0/GDRDMA']" ]
  run -2 net 4 "${fake[@]}" --inject slow:n3:0.003
  [[ $output == *"CRITICAL n3 nccl.send: "* ]]
  run -2 net 2 "${fake[@]}" --inject corrupt:n2
  [[ $output == *"nccl.data: "* ]]
  FAKE_NCCL="hang=1" run -2 net 2 "${fake[@]}" --pair-limit 2
  [[ $output == *"n1 <-> n2 nccl.exchange: failed"*"NCCL did not finish in time"* ]]
  nothing_runs_with "$library"
  FAKE_NCCL="connect=2" run -2 net 2 "${fake[@]}"
  [[ $output == *"NCCL failed: NCCL cannot connect the two GPUs: fake NCCL trouble"* ]]
  [[ $output == *"(Call to ibv_modify_qp failed with 110 Connection timed out)"* ]]
  run -0 net 2 --no-mpi --cuda "$library" --nccl libno-nccl.so
  [[ $output == *"note: NCCL was not tested on n[1-2]: "*"libno-nccl.so: cannot open shared object file"* ]]
  run -3 net 2 --no-mpi --cuda "$library" --nccl libno-nccl.so --missing-tool unknown
  [ "$(findings nccl.library)" = $'n1 UNKNOWN\nn2 UNKNOWN' ]
  [[ $output == *"libno-nccl.so: cannot open shared object file"* ]]
  run -0 net 2 --no-mpi --no-nccl --cuda "$library" --nccl libno-nccl.so
}

# bats test_tags=full
@test "nodes that are known to be bad are excluded regardless of the measurements" {
  printf 'n2\nelsewhere\n' > one.txt
  : > none.txt
  run -2 net 3 --no-mpi --known-bad none.txt one.txt
  [ "$(cat exclude.txt)" = n2 ]
  printf 'n2; rm -rf\n' > odd.txt
  run -3 net 2 --no-mpi --known-bad odd.txt
  [[ $output == *"ddp-check: odd.txt does not contain node names, one per line"* ]]
  run -3 net 2 --no-mpi --known-bad nowhere.txt
  [[ $output == *"ddp-check: cannot read node names from nowhere.txt"* ]]
  run -3 net 2 --no-mpi --known-bad .
  [[ $output == *"ddp-check: . is a directory; name a file of node names, one per line"* ]]
}

# bats test_tags=full
@test "noise alone is UNKNOWN, or WARNING on request" {
  # No machine measures the same speed twice within one percent.
  options=(--mib 1 --no-mpi --slow-warning 0.01 --slow-critical 0.011 --json net.json)
  run net 4
  [ "$(findings tcp.noise)" = UNKNOWN ]
  run net 4 --noise warning
  [ "$(findings tcp.noise)" = WARNING ]
  [[ $output == *"WARNING tcp.noise: "*"% slower would have been detected, expected at most 1: "* ]]
  run -3 net 4 --noise ok
  [[ $output == *"--noise: ok not in {unknown,warning}"* ]]
}

@test "simulate prints rates, time and memory" {
  run -0 "$check" simulate --nodes 10000 --bad 20 --trials 1
  [[ $output =~ ^1\ fleet\ of\ 10000\ nodes\ with\ 20\ bad\ .*:\ exact\ 100.0\ %.*locating\ took\ at\ most\ [0-9.]+\ s,\ ([0-9]+)\ MB ]]
  [ "${BASH_REMATCH[1]}" -lt 200 ]
  run -3 "$check" simulate --nodes 10 --bad 5
  run -0 "$check" simulate --nodes 64 --bad 1 --trials 5 --model tail --fault link --noise 0.05
  [[ $output == *"OK although something measured was bad 0.0 %"* ]]
  run -3 timeout 60 "$check" simulate --nodes 32 --bad 8 --fault leaf
  [[ $output == *"--bad must be less than half of the 2 switches"* ]]
  run -3 "$check" simulate --bad-speed nan
  run -3 "$check" simulate --model leaf:8:nan
  run -3 "$check" simulate --model nothing
  [[ $output == *"--model 'nothing' is not one of gauss, "* ]]
}
