# For the tests that run on a real SLURM: where things are, a cluster to run on, and a directory that
# all its nodes see. Use it so:
#
#   load common
#   setup_file() { cluster_up 4; }        # skips the file, with the reason, where SLURM cannot run
#   teardown_file() { cluster_down; }
#   setup() { cd "$work"; }               # $work is empty at first, and not in the nodes' own /tmp
# shellcheck shell=bash

project_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build_dir=$(readlink -e "${SLURM_DDP_BUILD:-$project_root/build}" || true)
export project_root build_dir
export cluster=$project_root/tests/local_cluster/cluster
export PATH=$build_dir/bin:$project_root/tests/cluster/programs:$PATH

# cluster_up N [options of `cluster up`]: exports what srun needs, and $work. MPI programs start by a plain
# srun, as on a site that made PMIx its default; with --mpi-default none it is as where nobody chose.
cluster_up() {
  [[ -n $build_dir ]] || { echo "no build directory; build first, or set SLURM_DDP_BUILD" >&2; return 1; }
  export SLURM_DDP_BUILD=$build_dir
  local message rc=0
  # Standard output goes elsewhere: a daemon that kept it would keep bats waiting.
  message=$("$cluster" up "$1" --mpi-default pmix "${@:2}" 2>&1 </dev/null) || rc=$?
  ((rc != 75)) || skip "no cluster here: $message"
  ((rc == 0)) || { echo "$message" >&2; return "$rc"; }
  eval "$("$cluster" env)"
  cluster_mode=$("$cluster" status | awk '$1 == "mode:" { print $2 }')
  work=$(mktemp -d /var/tmp/slurm-ddp-test.XXXXXX)
  chmod 755 "$work"
  state=$(dirname "$SLURM_CONF")
  export cluster_mode work state
}

cluster_down() {
  "$cluster" down 2>&1 </dev/null
  [[ -z ${work:-} ]] || rm -rf "$work"
}

# Every node is in service: nothing that a test did may drain one.
assert_nodes_in_service() {
  ! sinfo -h -N -o '%N %T %E' | grep -E ' [a-z]*(drain|down|fail|unknown|error|maint)|[*] '
}

# wait_until SECONDS COMMAND...: until it succeeds; for what happens in the background.
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || { echo "not within the time limit: $*" >&2; return 1; }
    sleep 0.2
  done
}

# run_job ARGUMENTS OF SBATCH...: until the job has ended, with its exit status: `sbatch --wait`, which
# in the end looks every half minute only.
run_job() {
  local job ended='JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|BOOT_FAIL|OUT_OF_MEMORY)'
  job=$(sbatch --parsable "$@") || return
  local said=
  until said=$(scontrol --oneliner show job "$job") && grep -qE "$ended" <<< "$said"; do sleep 0.3; done
  [[ $said =~ ExitCode=([0-9]+):([0-9]+) ]] || return 1
  ((BASH_REMATCH[2] == 0)) || return $((128 + BASH_REMATCH[2]))
  return "${BASH_REMATCH[1]}"
}

# What torch-client's four ranks wrote to `out`; it is shown if one is missing.
four_ranks_reduced() {
  cat out
  [ "$(grep -o 'of 4: gradient 1.5' out | wc -l)" -eq 4 ]
}

job_is_over() { ! squeue -h -j "$1" 2>/dev/null | grep -q .; }
