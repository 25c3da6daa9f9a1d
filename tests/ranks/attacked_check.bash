#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs two tasks of a step with a key, in a separate network namespace, while other users attack
# them: attacked_check.bash DDP_CHECK ATTACK.PY DIRECTORY [check|leader|none]. Writes the output of
# each task and its exit code to DIRECTORY.
set -u
check=$1 attack=$2 directory=$3 attacker=$4
export SLURM_JOB_ID=4242 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 \
  SLURM_STEP_NODELIST='n[1-2]' SLURM_STEP_TASKS_PER_NODE='1(x2)' SLURM_LOCALID=0 \
  MASTER_ADDR=127.0.0.1 MASTER_PORT=23500
# The format in which the plugin passes the key to the tasks.
SLURM_DDP_STEP_KEY=4242.0:$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
PROGRAM=$("$check" --version | head -n 1)
export PROGRAM

ip link set lo up
# Runs the attackers as another user if this script runs as root.
python=/usr/bin/python3 # the other user could not read one in this user's home
[ -x "$python" ] || python=python3
other=()
[ "$(id -u)" -ne 0 ] || [ -n "${IN_USER_NAMESPACE:-}" ] ||
  other=(setpriv --reuid=65534 --regid=65534 --clear-groups)

attackers=()
trap 'kill "${attackers[@]}" 2> /dev/null' EXIT
case $attacker in
  check) "${other[@]}" "$python" - check 23500 4242.0 < "$attack" > "$directory/attack" 2>&1 & attackers+=($!) ;;
  leader)
    "${other[@]}" "$python" - leader 23500 < "$attack" > "$directory/attack" 2>&1 &
    attackers+=($!)
    for ((i = 0; i < 200; ++i)); do
      grep -q listening "$directory/attack" && break
      sleep 0.1
    done
    ;;
esac

task() {
  local rank=$1
  shift
  SLURM_PROCID=$rank SLURM_NODEID=$rank SLURM_GTIDS=$rank SLURMD_NODENAME=n$((rank + 1)) \
    SLURM_DDP_STEP_KEY=$SLURM_DDP_STEP_KEY python3 - "$check" net --no-mpi --mib 4 "$@" << 'PY'
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print("peak MiB", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=sys.stderr)
sys.exit(code)
PY
  echo $? > "$directory/exit.$rank"
}
begin=$EPOCHREALTIME
task 0 --deadline "${DEADLINE:-30}" --out "$directory/out" > "$directory/said.0" 2>&1 &
first=$!
sleep 1 # the attackers must connect first
task 1 --deadline "${DEADLINE:-30}" > "$directory/said.1" 2>&1
wait "$first"
echo "$begin $EPOCHREALTIME" | awk '{ printf "%.1f s\n", $2 - $1 }' > "$directory/seconds"
