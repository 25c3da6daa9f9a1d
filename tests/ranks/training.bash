# SPDX-License-Identifier: Apache-2.0
# Runs ddp-train with several processes, for tests that need a training.
# shellcheck shell=bash

# For setup(): changes to a separate directory, named $work.
training_setup() {
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  bin=${SLURM_DDP_BUILD:-$here/build}/bin
  train=$bin/ddp-train
  work=$BATS_TEST_TMPDIR
  cd "$work" || exit 1
  export OMP_NUM_THREADS=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}

# ranks N ARGS...: runs a training with N ranks that must finish within three minutes.
ranks() {
  local n=$1
  shift
  timeout 180 mpirun --quiet -n "$n" "$train" "$@"
}

# Prints the processes of the training in background job $1, in the order in which they were
# started.
rank_pids() {
  local pid
  for pid in $(pgrep -P "$1"); do
    if [ "$(cat "/proc/$pid/comm")" = ddp-train ]; then echo "$pid"; else rank_pids "$pid"; fi
  done
}

# wait_while_running JOB COMMAND...: waits until the command succeeds. Fails if the background job
# exits first.
wait_while_running() {
  local job=$1
  shift
  until "$@" > /dev/null; do
    kill -0 "$job" || return
    sleep 0.02
  done
}

parameters() { grep -o 'parameters 0x[0-9a-f]*$' <<< "$output"; }

# Prints the program's own output, without mpirun's messages.
spoken() { grep '^ddp-train: ' <<< "$output"; }

# refused CODE TEXT ARGS...: two ranks must exit with CODE and one sentence that contains TEXT.
refused() {
  local code=$1 text=$2
  shift 2
  run -"$code" ranks 2 "$@"
  [ "$(spoken | wc -l)" -eq 1 ]
  [[ $(spoken) == *"$text"* ]]
}

# killed_rank_is_named TEXT ARGS...: kills the second of three ranks when the log has TEXT; the others must name it.
killed_rank_is_named() {
  local text=$1 job status=0
  shift
  ranks 3 "$@" > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q "$text" log
  kill -KILL "$(rank_pids "$job" | sed -n 2p)"
  wait "$job" || status=$?
  [ "$status" -ne 0 ]
  grep -E 'rank 1 .*exited unexpectedly' log
}
