# Trainings of ddp-train as several processes, for the tests that start them.
# shellcheck shell=bash

# For setup(): in a directory of its own, named $work.
training_setup() {
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  bin=${SLURM_DDP_BUILD:-$here/build}/bin
  train=$bin/ddp-train
  work=$BATS_TEST_TMPDIR
  cd "$work" || exit 1
  export OMP_NUM_THREADS=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}

# ranks N ARGS...: a training of N ranks that must end within a minute.
ranks() {
  local n=$1
  shift
  timeout 180 mpirun --quiet -n "$n" "$train" "$@"
}

# The processes of the training that background job $1 runs, in the order of their start.
rank_pids() {
  local pid
  for pid in $(pgrep -P "$1"); do
    if [ "$(cat "/proc/$pid/comm")" = ddp-train ]; then echo "$pid"; else rank_pids "$pid"; fi
  done
}

parameters() { grep -o 'parameters 0x[0-9a-f]*$' <<< "$output"; }

# What the program itself said, without mpirun's own words.
spoken() { grep '^ddp-train: ' <<< "$output"; }

# Expected exit code, text, arguments: one sentence, on two ranks.
refused() {
  local code=$1 text=$2
  shift 2
  run -"$code" ranks 2 "$@"
  [ "$(spoken | wc -l)" -eq 1 ]
  [[ $(spoken) == *"$text"* ]]
}
