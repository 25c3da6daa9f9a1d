# SPDX-License-Identifier: Apache-2.0
# Names, paths and defaults of the cluster. There is at most one cluster per machine or container, with fixed
# names for its network namespaces and state directory, so that any checkout can find and remove it.
# shellcheck shell=bash disable=SC2034  # the other parts use these

readonly EXIT_FAILED=1 EXIT_USAGE=2 EXIT_NOT_UP=3 EXIT_CANNOT_RUN=75
readonly MAX_NODES=200 # one address each from a /24

readonly STATE=/run/slurm-ddp-cluster # configuration, sockets, pid files, spool, logs
readonly LOCK=/run/slurm-ddp-cluster.lock
readonly NAMESPACE_PREFIX=ddp-            # ip netns list: ddp-node1, ddp-node2, ...
readonly CONTROLLER=ddp-controller        # the namespace of slurmctld, and of the bridge
# The machine's own link to the cluster's network. A container may share the network of its machine, which may have a
# cluster, too: the first process namespace of Linux has this number.
container=$(readlink /proc/self/ns/pid)
container=${container//[!0-9]/}
((container != 4026531836)) || container=
readonly container HOST_LINK=ddp-host${container:+-$((container % 100000))}
readonly CONTROLLER_PORT=26817 NODE_PORT=26818
readonly RESERVED_PORTS=23000-23999 # below the kernel's ephemeral range
readonly CLUSTER_NAME=ddp-local

node_count=0
mode=""
plugin=""
cpus_per_node=4
mpi_default=none # SLURM's own default
slurm_conf_extra=${SLURM_DDP_CLUSTER_SLURM_CONF_EXTRA:-}
tmp_size=${SLURM_DDP_CLUSTER_TMP_SIZE:-2g}
shm_size=${SLURM_DDP_CLUSTER_SHM_SIZE:-1g}

project_root=$(cd "$here/../.." && pwd)
build_dir=${SLURM_DDP_BUILD:-$project_root/build}

say() { printf 'cluster: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit "$EXIT_FAILED"
}

node_names() { # NUMBER_OF_NODES: prints their names, one per line
  local k
  for ((k = 1; k <= $1; k++)); do echo "node$k"; done
}

# Runs $@ under a lock, so that a second `cluster up` waits for the first. `down` deletes the lock
# file, so a waiter may get the lock of a deleted file; it then tries again with the new one.
with_lock() {
  require_root
  while :; do
    exec {lock_fd}>"$LOCK"
    flock "$lock_fd"
    [[ $LOCK -ef /proc/self/fd/$lock_fd ]] && break
    exec {lock_fd}>&-
  done
  "$@"
  exec {lock_fd}>&-
}
