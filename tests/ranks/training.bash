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

# Prints the processes of this test that match a pattern: tests of other files run at the same time.
processes() { # PATTERN
  local pid
  for pid in $(pgrep -f "$1"); do
    case $(readlink "/proc/$pid/cwd" || true) in "$work" | "$work"/*) [ "$pid" = $$ ] || echo "$pid" ;; esac
  done
}
is_running() { [ -n "$(processes "$1")" ]; } # PATTERN

# wait_while_running JOB COMMAND...: waits until the command succeeds. Fails if the background job
# exits first. SLURM_DDP_LATE=1: faults come a second later, as on a busy machine; trainings have to be long enough for it.
wait_while_running() {
  local job=$1
  shift
  until "$@" > /dev/null; do
    kill -0 "$job" || return
    sleep 0.02
  done
  sleep "${SLURM_DDP_LATE:-0}"
}

parameters() { grep -o 'parameters 0x[0-9a-f]*$' <<< "$output"; }

# Prints the program's own output, without mpirun's messages.
spoken() { grep '^ddp-train: ' <<< "$output"; }

# refused CODE TEXT ARGS...: a rank must exit with CODE and one sentence that contains TEXT. usage_errors.bats has
# several ranks, of which all but the first wait for its sentence.
refused() {
  local code=$1 text=$2
  shift 2
  run -"$code" timeout 180 "$train" "$@"
  [ "$(spoken | wc -l)" -eq 1 ]
  [[ $(spoken) == *"$text"* ]]
}

# refused_by_two CODE TEXT ARGS...: the same with two ranks, of which one sentence may be heard.
refused_by_two() {
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

# Writes large.h5: 200 samples, of which one has gradients that overflow with a large loss scale.
write_large_values() {
  /usr/bin/python3 -c "
import h5py, numpy
x = numpy.random.default_rng(1).random((200, 4), 'float32')
x[33, 2] = 1e10
with h5py.File('large.h5', 'w') as f:
    f['x'] = x
    f['y'] = numpy.arange(200) % 2"
}
