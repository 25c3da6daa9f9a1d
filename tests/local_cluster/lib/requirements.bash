# SPDX-License-Identifier: Apache-2.0
# Checks the requirements on this machine, and prints one sentence for each missing one.
# shellcheck shell=bash

readonly PACKAGES="slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge iproute2 util-linux"

cannot_run() {
  say "$*"
  exit "$EXIT_CANNOT_RUN"
}

require_root() {
  ((EUID == 0)) || cannot_run "starting and stopping nodes needs root; run it with sudo"
}

require_programs() {
  local program missing=()
  for program in slurmctld slurmd srun sinfo scontrol munged unshare nsenter setpriv; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  ((${#missing[@]} == 0)) ||
    cannot_run "no ${missing[*]} on this machine; run: apt-get install --no-install-recommends $PACKAGES"
}

# Tries to create a network namespace, which a container may forbid even to root.
network_namespaces_work() {
  command -v ip >/dev/null || return 1
  local probe=ddp-probe-$$ rc=0
  ip netns add "$probe" 2>/dev/null || return 1
  nsenter --net="/run/netns/$probe" unshare --mount --uts --propagation slave \
    sh -c 'hostname ddp-probe && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /tmp &&
           ip link add name probe type bridge && ip link add name a type veth peer name b' \
    >/dev/null 2>&1 || rc=1
  ip netns delete "$probe" 2>/dev/null || true
  return "$rc"
}

choose_mode() {
  case ${SLURM_DDP_CLUSTER_MODE:-} in
    netns) network_namespaces_work ||
      cannot_run "network namespaces do not work here (iproute2 missing, or forbidden in this container)"
      mode=netns ;;
    plain) mode=plain ;;
    none) cannot_run "SLURM_DDP_CLUSTER_MODE=none turns it off" ;;
    "") if network_namespaces_work; then mode=netns; else mode=plain; fi ;;
    *) usage_error "SLURM_DDP_CLUSTER_MODE must be netns, plain or none, not '$SLURM_DDP_CLUSTER_MODE'" ;;
  esac
  [[ $mode == netns ]] ||
    say "plain mode: several slurmd on this one host, which share its network, /tmp and /dev/shm"
}
