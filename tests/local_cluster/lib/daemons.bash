# SPDX-License-Identifier: Apache-2.0
# Starts munged, slurmctld and the slurmd daemons, and waits until they answer.
# shellcheck shell=bash

# Starts a separate munged with its own key, as the package's user, because it rejects other users'
# directories.
start_munged() {
  local user=root
  getent passwd munge >/dev/null && user=munge
  install -d -o "$user" -m 755 "$STATE/munge"
  (umask 077 && head -c 1024 /dev/urandom >"$STATE/munge/key")
  chown "$user" "$STATE/munge/key"
  chmod 400 "$STATE/munge/key"
  start_detached setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups \
    munged --socket "$STATE/munge/munge.socket" --key-file "$STATE/munge/key" \
    --pid-file "$STATE/munge/munged.pid" --log-file "$STATE/munge/munged.log" \
    --seed-file "$STATE/munge/munged.seed" || fail "munged does not start; see $STATE/log/start.log"
}

# start_in_node NAME COMMAND...: starts the command as the first daemon of that node, or of the
# controller.
start_in_node() {
  create_node_namespaces "$1"
  start_detached enter_node "$@"
}

start_slurmctld() {
  local start=start_detached
  [[ $mode == plain ]] || start="start_in_node $CONTROLLER"
  $start slurmctld -f "$STATE/slurm.conf" ||
    fail "slurmctld does not start; see $STATE/log/slurmctld.log and start.log"
}

start_slurmd() { # K
  local start="start_in_node node$1" directory=$STATE
  if [[ $mode == plain ]]; then
    start=start_detached directory=$STATE/nodes/node$1
    write_plain_node_configuration "$directory"
  fi
  $start slurmd -N "node$1" -f "$directory/slurm.conf" ||
    fail "slurmd of node$1 does not start; see $STATE/log/node$1.log and start.log"
}

# wait_for SECONDS WHAT COMMAND...: waits until the command succeeds.
wait_for() {
  local seconds=$1 what=$2 end
  shift 2
  end=$((SECONDS + seconds))
  until "$@"; do
    ((SECONDS < end)) || fail "$what did not happen within $seconds s; the logs are in $STATE/log"
    sleep 0.1
  done
}

controller_answers() { grep -q 'is UP' < <(SLURM_CONF=$STATE/slurm.conf scontrol ping 2>/dev/null); }

all_nodes_idle() {
  local states
  states=$(SLURM_CONF=$STATE/slurm.conf sinfo -h -N -o '%T' 2>/dev/null) || return 1
  [[ $(grep -cx idle <<<"$states") -eq $node_count ]]
}

# A busy node is also healthy; "*" (does not answer), down, drained and unknown are not.
all_nodes_usable() {
  local states
  states=$(SLURM_CONF=$STATE/slurm.conf timeout 10 sinfo -h -N -o '%T' 2>/dev/null) || return 1
  [[ $(grep -cxE 'idle|mixed|allocated|completing' <<<"$states") -eq $node_count ]]
}
