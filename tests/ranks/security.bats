#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Other users of the machine connect to every port that a check or a training opens. They must not
# change any rank's verdict, drain a node or disturb a training. See docs/security.md.

bats_require_minimum_version 1.5.0
load training

setup() {
  training_setup
  check=$bin/ddp-check
  attack=$BATS_TEST_DIRNAME/attack.py
}

# alone COMMAND...: runs the command in a separate network namespace, so that no other program is
# attacked.
alone() {
  if [ "$(id -u)" -eq 0 ]; then
    unshare --net -- "$@"
  else
    IN_USER_NAMESPACE=1 unshare --user --map-root-user --net -- "$@"
  fi
}

can_be_alone() {
  alone ip link set lo up 2> /dev/null || skip "no network namespace: needs root, or unprivileged user namespaces"
}

attacked_check() {
  mkdir -p "$work/$1"
  alone "$BATS_TEST_DIRNAME/attacked_check.bash" "$check" "$attack" "$work/$1" "$1"
}

not_ok() {
  python3 -c 'import json, sys
for f in json.load(open(sys.argv[1]))["findings"]:
    if f["severity"] != "OK": print(f["severity"], f["check"], f["subject"]["node"])' "$1/out/verdict.json"
}

peak() { sed -n 's/^peak MiB //p' "$1/said.0"; }

@test "attackers on all ports of a check: the same verdict, no finding, no extra memory" {
  can_be_alone
  attacked_check none
  attacked_check check
  echo "# $(cat none/seconds) and $(peak none) MiB alone, $(cat check/seconds) and $(peak check) MiB attacked, $(grep -c filled check/attack) ports filled" >&3
  for run in none check; do
    [ "$(cat "$run/exit.0" "$run/exit.1" | paste -sd' ')" = "0 0" ] || { cat "$run"/said.*; false; }
    [ -z "$(not_ok "$run")" ] || { not_ok "$run"; false; }
  done
  [ "$(grep -c filled check/attack)" -ge 1 ] # the attack must have taken place
  run ! grep ANSWERED check/attack
  run ! grep -rP '\x1b' check/said.0 check/said.1 check/out
  [ ! -s check/out/exclude.txt ]
  [ "$(peak check)" -lt $(($(peak none) + 64)) ]
}

@test "an attacker on the leader's port cannot give any task a verdict" {
  can_be_alone
  DEADLINE=3 attacked_check leader
  [ "$(cat leader/exit.0 leader/exit.1 | paste -sd' ')" = "2 2" ] || { cat leader/said.*; false; }
  # Depending on how far an attacker answers.
  grep -qE 'the answering process does not have the key of this step|the process listening there is not ddp-check' leader/said.1 ||
    { cat leader/said.1; false; }
}

@test "a step without a key does not drain anything" {
  export SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 \
    SLURM_STEP_NODELIST='n[1-2]' SLURM_STEP_TASKS_PER_NODE='1(x2)' SLURM_LOCALID=0 SLURM_PROCID=0 \
    SLURM_NODEID=0 SLURM_GTIDS=0 SLURMD_NODENAME=n1
  run -3 timeout 60 "$check" net --key none --act
  [[ $output == *"without a key the tasks of this step cannot be authenticated"* ]]
  run -3 timeout 60 "$check" net --key "file:$attack"
  [[ $output == *"must be owned by you and accessible only to you: chmod 600"* ]]
}

@test "attackers on all ports of a training" {
  can_be_alone
  cat > attacked_training.bash <<'BASH'
set -u
ip link set lo up
other=()
[ "$(id -u)" -ne 0 ] || [ -n "${IN_USER_NAMESPACE:-}" ] ||
  other=(setpriv --reuid=65534 --regid=65534 --clear-groups)
python=/usr/bin/python3
[ -x "$python" ] || python=python3
"${other[@]}" "$python" - ports < "$1" > attack 2>&1 &
trap 'kill $!' EXIT
shift
timeout 120 "$@" > said 2>&1
BASH
  alone bash attacked_training.bash "$attack" mpirun -n 2 "$train" --model mlp --data digits \
    --epochs 1 --batch 32 || { cat said attack; false; }
  echo "# $(grep -c filled attack) ports filled" >&3
  grep -q filled attack
}
