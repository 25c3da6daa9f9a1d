# SPDX-License-Identifier: Apache-2.0
# Creates the parts of a node besides its network: a host name, /tmp, /dev/shm, /sys of its own
# network, and a hosts file. Bind mounts keep the namespaces, so that a node whose processes were
# all killed can still be inspected.
# shellcheck shell=bash

readonly NAMESPACES=$STATE/namespaces

create_namespace_directory() {
  mkdir -p "$NAMESPACES"
  mount --bind "$NAMESPACES" "$NAMESPACES"
  mount --make-private "$NAMESPACES" # the kernel keeps mount namespaces only in a private mount
}

create_node_namespaces() { # NAME
  local cpu
  touch "$NAMESPACES/$1.mnt" "$NAMESPACES/$1.uts"
  for cpu in $(allowed_cpus); do
    can_keep_mount_namespace "$cpu" && break
  done
  nsenter --net="/run/netns/$(network_namespace "$1")" \
    taskset --cpu-list "$cpu" unshare --mount="$NAMESPACES/$1.mnt" --uts="$NAMESPACES/$1.uts" --propagation slave \
    bash "$here/lib/inside_node.bash" "$1" "$STATE" "$tmp_size" "$shm_size" "$project_root" \
    >>"$STATE/log/start.log" 2>&1 || fail "cannot make the namespaces of $1; see $STATE/log/start.log"
}

# Linux 6.18 keeps a mount namespace only if its number is higher than that of the current one. Each CPU has numbers of its
# own, so that in a container only the namespaces of some CPUs can be kept.
can_keep_mount_namespace() { # CPU
  local probe=$NAMESPACES/probe.mnt rc=0
  touch "$probe"
  taskset --cpu-list "$1" unshare --mount="$probe" true 2>/dev/null || rc=1
  umount "$probe" 2>/dev/null
  rm -f "$probe"
  return "$rc"
}

allowed_cpus() { # prints their numbers
  local range
  for range in $(taskset --cpu-list --pid $$ | sed 's/.*: //; s/,/ /g'); do seq "${range%-*}" "${range#*-}"; done
}

network_namespace() { # NAME of a node or of the controller
  if [[ $1 == "$CONTROLLER" ]]; then echo "$1"; else echo "$NAMESPACE_PREFIX$1"; fi
}

# enter_node NAME COMMAND...: replaces this shell with the command in the node's namespaces.
enter_node() {
  local name=$1
  shift
  exec nsenter --net="/run/netns/$(network_namespace "$name")" --mount="$NAMESPACES/$name.mnt" \
    --uts="$NAMESPACES/$name.uts" "$@"
}

# Unmounts everything below the state directory, deepest first. The kernel drops a namespace, and
# the mounts in it, with its last reference.
unmount_all() {
  local point
  while read -r point; do
    umount -l "$point" 2>/dev/null || true
  done < <(awk -v s="$STATE/" 'index($5, s) == 1 { print $5 }' /proc/self/mountinfo | sort -r)
}

exec_in_node() {
  [[ $# -ge 3 && $2 == -- ]] || usage_error "use: cluster exec nodeK -- CMD"
  require_root
  require_up
  local name=$1
  shift 2
  grep -qxF "$name" < <(node_names "$node_count") || fail "no node '$name': there are node1 to node$node_count"
  export SLURM_CONF=$STATE/slurm.conf
  if [[ $mode == plain ]]; then exec "$@"; else enter_node "$name" "$@"; fi
}
