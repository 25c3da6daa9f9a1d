#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs once inside the new mount and UTS namespaces of a node, and sets up the node's view.
# Arguments: NAME STATE TMP_SIZE SHM_SIZE PROJECT_ROOT
set -euo pipefail
name=$1 state=$2 tmp_size=$3 shm_size=$4 project_root=$5

hostname "$name"

# A new /sys shows the interfaces of this network namespace, not those of the machine.
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs /sys

# /tmp is private because the PMIx plugin creates directories there that are named only by job and
# step. A project in /tmp or /dev/shm must stay visible, or no job could run its programs.
keep=""
case $project_root/ in
  /tmp/?* | /dev/shm/?*)
    keep=$state/keep-$name
    mkdir -p "$keep"
    mount --bind "$project_root" "$keep"
    ;;
esac
mount -t tmpfs -o "size=$tmp_size,mode=1777,nosuid,nodev" tmpfs /tmp
mkdir -p /dev/shm
mount -t tmpfs -o "size=$shm_size,mode=1777,nosuid,nodev" tmpfs /dev/shm
if [[ -n $keep ]]; then
  mkdir -p "$project_root"
  mount --move "$keep" "$project_root"
  rmdir "$keep"
fi

mount --bind "$state/hosts" /etc/hosts
if [[ -e /etc/resolv.conf ]]; then mount --bind "$state/resolv.conf" /etc/resolv.conf; fi
