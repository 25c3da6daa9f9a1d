# SPDX-License-Identifier: Apache-2.0
# Shared code of the tests on a real SLURM: paths, a cluster, and a directory that all its nodes
# see. Usage:
#
#   load common
#   setup_file() { cluster_up 4; }        # skips the file, with the reason, if SLURM cannot run
#   teardown_file() { cluster_down; }
#   setup() { cd "$work"; }               # $work is empty at first, and not in the nodes' own /tmp
# shellcheck shell=bash

project_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build_dir=$(readlink -e "${SLURM_DDP_BUILD:-$project_root/build}" || true)
export project_root build_dir
export cluster=$project_root/tests/local_cluster/cluster
export PATH=$build_dir/bin:$project_root/tests/cluster/programs:$PATH

# Whether SLURM can start MPI programs. Debian's SLURM 26.05 cannot.
has_pmix() { compgen -G "/usr/lib/*/slurm*/mpi_pmix.so" > /dev/null; }
need_pmix() { has_pmix || skip "this SLURM has no PMIx"; }

# cluster_up N [options of `cluster up`]: exports the settings for srun, $work, and $mpi, which is
# pmix, or none where there is no PMIx. Plain srun has --mpi=$mpi, as on a site where PMIx is the
# default; with --mpi-default none, SLURM has its own default.
cluster_up() {
  [[ -n $build_dir ]] || { echo "no build directory; build first, or set SLURM_DDP_BUILD" >&2; return 1; }
  export SLURM_DDP_BUILD=$build_dir
  local message rc=0
  mpi=none
  ! has_pmix || mpi=pmix
  # Standard output is redirected, because a daemon that inherits it would keep bats waiting.
  message=$("$cluster" up "$1" --mpi-default $mpi "${@:2}" 2>&1 </dev/null) || rc=$?
  ((rc != 75)) || skip "no cluster here: $message"
  ((rc == 0)) || { echo "$message" >&2; return "$rc"; }
  eval "$("$cluster" env)"
  cluster_mode=$("$cluster" status | awk '$1 == "mode:" { print $2 }')
  work=$(mktemp -d /var/tmp/slurm-ddp-test.XXXXXX)
  chmod 755 "$work"
  state=$(dirname "$SLURM_CONF")
  export cluster_mode work state mpi
}

cluster_down() {
  "$cluster" down 2>&1 </dev/null
  rm -rf ${work:+"$work"} ${extra:+"$extra"}
}

# Checks that every node is in service, because no test may drain one.
assert_nodes_in_service() {
  ! sinfo -h -N -o '%N %T %E' | grep -E ' [a-z]*(drain|down|fail|unknown|error|maint)|[*] '
}

# wait_until SECONDS COMMAND...: waits for background work until the command succeeds. SLURM_DDP_LATE=1: what comes next
# comes a second later, as on a busy machine.
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || { echo "not within the time limit: $*" >&2; return 1; }
    sleep 0.2
  done
  sleep "${SLURM_DDP_LATE:-0}"
}

# run_job ARGUMENTS OF SBATCH...: waits for the job and returns its exit status. Replaces `sbatch
# --wait`, which after a while checks only every half minute.
run_job() {
  local job ended='JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|BOOT_FAIL|OUT_OF_MEMORY)'
  job=$(sbatch --parsable "$@") || return
  local said=
  until said=$(scontrol --oneliner show job "$job") && grep -qE "$ended" <<< "$said"; do sleep 0.3; done
  [[ $said =~ ExitCode=([0-9]+):([0-9]+) ]] || return 1
  ((BASH_REMATCH[2] == 0)) || return $((128 + BASH_REMATCH[2]))
  return "${BASH_REMATCH[1]}"
}

# Checks the output of torch-client's four ranks in `out`, and shows it if one is missing.
four_ranks_reduced() {
  cat out
  [ "$(grep -o 'of 4: gradient 1.5' out | wc -l)" -eq 4 ]
}

job_is_over() { ! squeue -h -j "$1" 2>/dev/null | grep -q .; }

# For setup(): tasks of programs/record-task write their variables to files in $RECORDS, which is empty.
empty_records() {
  export RECORDS=$work/records
  rm -rf "$RECORDS" && mkdir "$RECORDS"
}
recorded() { # RANK NAME
  grep -lx "RANK=$1" "$RECORDS"/task.* | xargs sed -n "s/^$2=//p"
}
all_recorded() { # NAME: the values of all tasks, sorted
  sed -n "s/^$1=//p" "$RECORDS"/task.* | sort | paste -sd' '
}

# For teardown(): no job of a failed test may disturb the next one.
end_all_jobs() {
  scancel --user=root 2>/dev/null || true
  wait_until 60 no_jobs_left
  assert_nodes_in_service
}
no_jobs_left() { [[ -z $(squeue -h) ]]; }

# For setup_file(): makes the directory $extra, which all nodes see, for parts of slurm.conf. cluster_down removes it.
make_extra() {
  extra=$(mktemp -d /var/tmp/slurm-ddp-extra.XXXXXX)
  export extra
  chmod 755 "$extra"
}

need_torch() {
  /usr/bin/python3 -c 'import torch.distributed' 2>/dev/null || skip "no python3-torch on this machine"
}

# Prints the checksum of the parameters that ddp-train reports at the end of a log.
parameters_of() { grep -o 'parameters 0x[0-9a-f]*$' "$1" | tail -n 1; }
