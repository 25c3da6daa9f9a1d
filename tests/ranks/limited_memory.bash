# SPDX-License-Identifier: Apache-2.0
# Lack of memory, for tests. Needs root, and cgroups of either version.
# shellcheck shell=bash

# in_limited_memory MIB COMMAND...: in a memory cgroup of its own, without swap.
in_limited_memory() {
  local parent=/sys/fs/cgroup limit=memory.max swap=memory.swap.max swap_bytes=0
  if [ -d $parent/memory ]; then
    parent=$parent/memory limit=memory.limit_in_bytes swap=memory.memsw.limit_in_bytes swap_bytes=$(($1 << 20))
  fi
  local group=$parent/slurm-ddp-$$
  if ! mkdir "$group" || ! echo $(($1 << 20)) > "$group/$limit"; then
    skip "no right to limit memory (needs root and cgroups)"
  fi
  [ ! -e "$group/$swap" ] || echo $swap_bytes > "$group/$swap"
  local status=0
  bash -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "${@:2}" || status=$?
  for _ in {1..600}; do if rmdir "$group" 2> /dev/null; then break; fi; sleep 0.1; done
  return $status
}
