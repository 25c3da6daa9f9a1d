# SPDX-License-Identifier: Apache-2.0
# Starts a cluster and reports its status.
# shellcheck shell=bash

read_settings() {
  [[ -r $STATE/settings ]] || return 1
  # shellcheck source=/dev/null
  source "$STATE/settings"
}

require_up() {
  read_settings || { say "no cluster is up; start one with: cluster up 2"; exit "$EXIT_NOT_UP"; }
}

is_healthy() {
  [[ -d $STATE ]] && all_nodes_usable
}

already_up_as_asked() {
  [[ -r $STATE/fingerprint ]] && [[ $(fingerprint) == "$(<"$STATE/fingerprint")" ]] && is_healthy
}

bring_up() {
  require_programs
  default_plugin
  choose_mode
  if already_up_as_asked; then
    write_plugstack # a test may have changed it, and SLURM reads it at every launch
    say "$node_count nodes are up already"
    return
  fi
  remove_everything
  [[ $mode == plain ]] || choose_subnet
  install -d -m 755 "$STATE"
  start_cluster # not in a condition, where `set -e` does not apply
  say "$node_count nodes are up ($mode); use them with: eval \"\$($here/cluster env)\""
}

start_cluster() {
  local k
  write_configuration
  if [[ $mode == netns ]]; then
    write_hosts_file
    create_namespace_directory
    create_controller_network
    for ((k = 1; k <= node_count; k++)); do create_node_network "$k"; done
  fi
  start_munged
  start_slurmctld
  for ((k = 1; k <= node_count; k++)); do start_slurmd "$k"; done
  wait_for 60 "the start of the controller" controller_answers
  wait_for 60 "idle nodes" all_nodes_idle
}

print_env() {
  require_up
  printf 'export SLURM_CONF=%q\n' "$STATE/slurm.conf"
  # Gives ddp-launch the settings that plugstack.conf gives to the plugin, because the node names do
  # not resolve.
  [[ $mode == netns ]] || echo 'export SLURM_DDP=master_addr=127.0.0.1'
}

print_status() {
  require_up
  local nodes
  nodes=$(SLURM_CONF=$STATE/slurm.conf timeout 10 sinfo -h -N -o '%N %T' 2>/dev/null || true)
  echo "mode:   $mode"
  echo "nodes:  $node_count"
  echo "state:  $STATE"
  echo "plugin: $(awk '$1 == "optional" { print $2 }' "$STATE/plugstack.conf.d/zz-ddp.conf" 2>/dev/null || true)"
  [[ -z $nodes ]] || awk '{ printf "%-8s%s\n", $1 ":", $2 }' <<<"$nodes"
  if is_healthy; then
    echo "healthy"
  else
    echo "unhealthy: see $STATE/log"
    exit "$EXIT_FAILED"
  fi
}
