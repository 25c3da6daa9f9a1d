#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The cases of watch.bats with proctrack/cgroup, as most sites have it: slurmstepd then signals only its own child, which is
# the guard, and suspends a step by freezing its cgroup.

bats_require_minimum_version 1.5.0

setup() { mountpoint=$(mktemp -d /var/tmp/slurm-ddp-cgroup.XXXXXX); }
teardown() {
  for group in "$mountpoint"/freezer/slurm_node*; do [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} +; done
  umount "$mountpoint"/* || true
  rmdir "$mountpoint"/* "$mountpoint" || true
}

# bats test_tags=full
@test "--ddp=watch with proctrack/cgroup" {
  local name conf=$BATS_TEST_TMPDIR/conf
  # A node's network namespace has a /sys of its own, without cgroups.
  for name in freezer memory; do
    mkdir "$mountpoint/$name"
    mount -t cgroup -o $name cgroup "$mountpoint/$name" || skip "this machine has no cgroups of version 1 ($name)"
  done
  mkdir "$conf"
  echo ProctrackType=proctrack/cgroup > "$conf/slurm.conf"
  printf '%s\n' CgroupPlugin=cgroup/v1 CgroupAutomount=no "CgroupMountpoint=$mountpoint" > "$conf/cgroup.conf"
  SLURM_DDP_CLUSTER_SLURM_CONF_EXTRA=$conf run -0 bats "$BATS_TEST_DIRNAME/watch.bats"
  [ "$(grep -c '^ok ' <<< "$output")" -gt 30 ]
  [ "$(grep -c '^ok .* # skip' <<< "$output")" -le 2 ] # cores may go elsewhere, and memory have no limits
}
