# SPDX-License-Identifier: Apache-2.0
# Removes a cluster, complete or crashed: jobs, processes, mounts, network, files, in this order.
# shellcheck shell=bash

# Cancels jobs, so that clients that wait for them exit. Does not wait for a dead controller.
cancel_jobs() {
  [[ -f $STATE/slurm.conf ]] || return 0
  local jobs
  jobs=$(SLURM_CONF=$STATE/slurm.conf timeout 3 squeue -h -o %A 2>/dev/null | sort -u) || return 0
  [[ -n $jobs ]] || return 0
  # shellcheck disable=SC2086  # a list of numbers
  SLURM_CONF=$STATE/slurm.conf timeout 3 scancel --signal=KILL --full $jobs 2>/dev/null || true
  # shellcheck disable=SC2086
  SLURM_CONF=$STATE/slurm.conf timeout 3 scancel $jobs 2>/dev/null || true
  sleep 0.5
}

remove_everything() {
  cancel_jobs
  end_processes
  unmount_all
  remove_network
  rm -rf --one-file-system "$STATE"
}

take_down() {
  remove_everything
  rm -f "$LOCK"
}
