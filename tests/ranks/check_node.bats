#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-check node on this machine, with injected faults: full and read-only file systems, and system
# calls that fail, return wrong results or hang.

bats_require_minimum_version 1.5.0
load training

setup() {
  training_setup
  check=$bin/ddp-check
  mkdir dir
}

# node ARGS...: runs the check. The state of this machine does not matter here, only that of the
# directory under test.
node() { timeout 60 "$check" node --name here --json node.json "$@"; }

# Prints the severity of check $1, and its evidence.
severity() { field "$1" severity; }
evidence() { field "$1" evidence; }
field() {
  python3 -c "import json; print(*[f['$2'] for f in json.load(open('node.json'))['findings']
    if f['check'] == '$1'], sep='\n')"
}

# in_own_mounts COMMAND: runs the command as root in a separate mount namespace, so that nothing is
# left behind.
in_own_mounts() {
  [ "$(id -u)" -eq 0 ] || skip "mounting needs root"
  unshare --mount -- bash -euc "$1" bash "$check" "$work"
}

# with_faults INJECTION ARGS...: runs the check under strace, which makes system calls fail.
with_faults() {
  command -v strace > /dev/null || skip "strace is not installed"
  local injection=$1
  shift
  timeout 60 strace --quiet=all --follow-forks --output trace.txt --inject "$injection" \
    "$check" node --name here "$@"
}

@test "every check reports, findings that are not OK are printed, and the most severe sets the exit code" {
  run --separate-stderr node --dir dir
  [ "$status" -le 3 ]
  not_ok=$(python3 -c "import json
print(sum(f['severity'] != 'OK' for f in json.load(open('node.json'))['findings']))")
  [ "$(wc -l <<< "$output")" -eq $((not_ok + 1)) ]
  for check_name in interface.any limits.memlock limits.nofile limits.nproc limits.stack \
    storage.shm storage.tmp storage.dir name.own cpu.affinity memory.available clock.synchronized; do
    [ -n "$(severity $check_name)" ]
  done
  [ "$(severity storage.dir)" = OK ]
  [ "$(python3 -c "import json; print(json.load(open('node.json'))['exit_code'])")" -eq "$status" ]
  [ -z "$(ls dir)" ]
}

@test "a directory that does not exist" {
  run -2 node --dir dir/nothing --exclude-file exclude.txt
  [ "$(cat exclude.txt)" = here ]
  [[ $output == *"here dir/nothing storage.dir: not measured"*"No such file or directory"* ]]
}

@test "a full file system" {
  run -2 in_own_mounts 'mount -t tmpfs -o size=1m full "$2/dir"; head -c 1m /dev/zero > "$2/dir/x" || true
    "$1" node --name here --json "$2/node.json" --dir "$2/dir"'
  [ "$(severity storage.dir)" = CRITICAL ]
  [[ $(evidence storage.dir) == *"No space left on device" ]]
}

@test "a file system with little free space" {
  run -2 in_own_mounts 'mount -t tmpfs -o size=32m small "$2/dir"
    "$1" node --name here --json "$2/node.json" --dir "$2/dir"'
  [ "$(evidence storage.dir)" = "out of 32 MiB" ]
}

@test "a read-only file system" {
  run -2 in_own_mounts 'mount -t tmpfs -o ro,size=2g readonly "$2/dir"
    "$1" node --name here --json "$2/node.json" --dir "$2/dir"'
  [[ $(evidence storage.dir) == *"Read-only file system" ]]
}

@test "a /dev/shm that is too small" {
  run -2 in_own_mounts 'mount -t tmpfs -o size=16m small /dev/shm
    "$1" node --name here --json "$2/node.json"'
  [ "$(severity storage.shm)" = CRITICAL ]
}

@test "a device that cannot be flushed" {
  run -2 with_faults fsync:error=EIO
  [[ $output == *"/tmp storage.tmp: "*": flushing 1 MiB failed: Input/output error; "* ]]
}

# change_behind_its_back: runs the check with a delayed flush, and changes the check's unnamed file
# before the flush. Returns the check's status.
change_behind_its_back() {
  with_faults fsync:delay_enter=600ms --dir "$work/dir" > out.txt &
  local job=$! file=''
  until [ -n "$file" ] && [ "$(stat --dereference --format %s "$file")" -eq 1048576 ]; do
    kill -0 $job 2> /dev/null || break
    file=$(find /proc/[0-9]*/fd -lname "$work/dir/#*" 2> /dev/null | head -n 1)
  done
  [ -z "$file" ] || printf wrong | dd of="$file" conv=notrunc bs=1 seek=5000 status=none || true
  wait $job
}

@test "a device that returns wrong data" {
  # On a busy machine, the change may come too late.
  local status=0
  for _ in 1 2 3 4 5; do
    change_behind_its_back && status=0 || status=$?
    [ "$status" -ne 2 ] || break
  done
  [ "$status" -eq 2 ]
  grep -q '/dir storage.dir: .*: the data read back differ from the data written; ' out.txt
}

@test "a file system without unnamed files is tested and left clean" {
  command -v strace > /dev/null || skip "strace is not installed"
  run timeout 60 strace --quiet=all --follow-forks --output trace.txt --trace-path="$work/dir" \
    --inject openat:error=EOPNOTSUPP "$check" node --name here --json node.json --dir "$work/dir"
  grep -q 'O_TMPFILE.*INJECTED' trace.txt
  [ "$(severity storage.dir)" = OK ]
  [ -z "$(ls dir)" ]
}

# bats test_tags=full
@test "a file system that does not answer does not hang the check" {
  run -2 with_faults fsync:delay_enter=15s
  [[ $output == *"/tmp storage.tmp: not measured"*": the file system did not answer within 1000 ms; "* ]]
}

@test "a clock that cannot be read is UNKNOWN" {
  run with_faults adjtimex,clock_adjtime:error=EPERM
  [ "$status" -ge 2 ]
  [[ $output == *"UNKNOWN here clock.synchronized: not measured"* ]]
}

# with_name_server ANSWER: runs the check on a machine whose name only a name server knows, which
# answers every question with that code of DNS, or not at all.
with_name_server() {
  [ "$(id -u)" -eq 0 ] || skip "namespaces need root"
  printf 'nameserver 127.0.0.53\n' > resolv.conf
  printf 'hosts: dns\n' > nsswitch.conf
  cat > server.py << 'END'
import socket, struct, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.53", 53))
print("ready", flush=True)
while True:
    question, address = server.recvfrom(4096)
    if sys.argv[1] != "silence":
        head = list(struct.unpack(">6H", question[:12]))
        head[1] = 0x8180 | int(sys.argv[1])
        server.sendto(struct.pack(">6H", *head) + question[12:], address)
END
  # shellcheck disable=SC2016 # the program's own parameters
  unshare --net --mount --uts --pid --fork --kill-child -- bash -euc 'ip link set lo up
    hostname node-that-only-dns-knows
    mount --bind "$2/nsswitch.conf" /etc/nsswitch.conf
    mount --bind "$2/resolv.conf" "$(readlink --canonicalize /etc/resolv.conf)"
    coproc server { python3 "$2/server.py" "$3"; }
    read -r ready <&"${server[0]}"
    "$1" node --name here --json "$2/node.json"' bash "$check" "$work" "$1"
}

@test "a name service that fails says nothing about the node" {
  run with_name_server 3 # NXDOMAIN
  [ "$(severity name.own)" = CRITICAL ]
  for answer in 2 5 silence; do # SERVFAIL, REFUSED
    run with_name_server $answer
    [ "$(severity name.own)" = UNKNOWN ]
    [[ $output == *"UNKNOWN here name.own: no answer, "*"check the name service (/etc/resolv.conf, "* ]]
  done
}

@test "low limits" {
  run bash -c 'ulimit -n 512; timeout 20 "$1" node --name here --json node.json' bash "$check"
  [ "$status" -eq 2 ]
  [ "$(severity limits.nofile)" = CRITICAL ]
}

@test "fewer CPUs than SLURM promised" {
  SLURM_CPUS_PER_TASK=100000 run node
  [ "$(severity cpu.affinity)" = WARNING ]
}

@test "usage errors are UNKNOWN" {
  run -3 node --expect-mtu 3
  run -3 node --min-speed fast
  run -3 node --frobnicate
  run -3 node --exclude-file dir/../node.json
  [[ $output == *"--json and --exclude-file both write the file dir/../node.json; give each its own"* ]]
  run -3 node --counters node.json
  [ ! -e node.json ]
}

@test "a file of options is bounded" {
  run -3 timeout 60 "$check" --config /dev/zero node
  [[ $output == "ddp-check: the file of --config is longer than 1 MiB, so it does not hold options;"* ]]
  run -3 timeout 60 "$check" --config <(yes '# comment' 2> /dev/null) node
  [[ $output == *"longer than 1 MiB"* ]]
  run -3 timeout 60 "$check" --config dir node
  [[ $output == *"dir was not readable"* ]]
}

@test "missing GPUs that a step requested are CRITICAL; without a request, nothing is reported" {
  [ ! -e /proc/driver/nvidia ] || skip "this machine has GPUs"
  SLURM_GPUS_ON_NODE=2 run -2 node
  [ "$(severity gpu.present)" = CRITICAL ]
  [ "$(severity gpu.health)" = UNKNOWN ]
  [[ $output == *'CRITICAL here gpu.present: 0 GPUs, expected at least 2: according to SLURM_GPUS_ON_NODE'* ]]
  run node
  [ -z "$(severity gpu.present)$(severity gpu.health)" ]
}

@test "only the running command's section of a site's file applies" {
  mkdir bin
  printf '#!/bin/sh\ntouch drained\n' > bin/scontrol
  chmod +x bin/scontrol
  printf '%s\n' '[net]' 'json=net.json' 'want=7' 'out=net' 'act=true' '[node]' 'json=node.json' > site.ini
  PATH=$work/bin:$PATH run -2 timeout 60 "$check" --config site.ini node --name here --dir /nowhere
  [[ $output == *'to drain it'* && $output != *'wanted'* ]]
  [ "$(severity storage.dir)" = CRITICAL ]
  [ ! -e net.json ] && [ ! -e net ] && [ ! -e drained ]
}
