# SPDX-License-Identifier: Apache-2.0
# Runs ddp-train and the other programs of the build with several processes.
# shellcheck shell=bash

# For setup(): changes to a separate directory, named $work. The programs are in $bin, those of tests in $build/tests.
training_setup() {
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  build=${SLURM_DDP_BUILD:-$here/build}
  bin=$build/bin
  train=$bin/ddp-train
  work=$BATS_TEST_TMPDIR
  cd "$work" || exit 1
  # shellcheck source=tests/ranks/mpirun.bash
  source "$here/tests/ranks/mpirun.bash"
  # shellcheck source=tests/ranks/limited_memory.bash
  source "$here/tests/ranks/limited_memory.bash"
}

# ranks N ARGS...: runs a training with N ranks that must finish within three minutes.
ranks() {
  local n=$1
  shift
  timeout 180 mpirun -n "$n" "$train" "$@"
}

# Prints the processes of the training in background job $1, in the order of their ranks. They may have been started in
# another order.
rank_pids() { ranks_below "$1" | sort -n | cut -d ' ' -f 2; }
ranks_below() {
  local pid
  for pid in $(pgrep -P "$1"); do
    if [ "$(cat "/proc/$pid/comm")" = ddp-train ]; then
      echo "$(tr '\0' '\n' < "/proc/$pid/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p;T;q' || true) $pid"
    else
      ranks_below "$pid"
    fi
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

# pid_of_rank RANK PROGRAM: prints the process of this test that runs the rank, under mpirun or in a task of SLURM.
pid_of_rank() {
  local pid
  for pid in $(processes "^$2"); do
    if tr '\0' '\n' < "/proc/$pid/environ" | grep -qE "^(OMPI_COMM_WORLD_RANK|SLURM_PROCID)=$1\$"; then echo "$pid"; fi
  done
}

# Whether a program ended by itself, and not by the limit of `timeout -k`. 137 is also the code of a killed rank.
ended_in_time() { [ "$1" -ne 124 ] && [ "$1" -ne 137 ]; } # STATUS

# For teardown(), of tests that mount a small disk, and of those with a background job.
unmount_disk() { ! mountpoint -q disk || umount disk; }
kill_job() { [ -z "${job:-}" ] || kill -KILL "$job" 2> /dev/null || true; }

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

# ended_with CODE [LOG]: waits for the background job $job, which must exit with CODE, and prints its log.
ended_with() {
  local status=0
  wait "$job" || status=$?
  job=
  [ ! -e "${2:-log}" ] || cat "${2:-log}"
  [ "$status" -eq "$1" ] || { echo "exit code $status" && return 1; }
}

parameters() { grep -o 'parameters 0x[0-9a-f]*$' <<< "$output"; }

# Prints the program's own output, without mpirun's messages.
spoken() { grep '^ddp-train: ' <<< "$output"; }

# arrays DIRECTORY: the names, types and shapes in the newest checkpoint.
arrays() { "$bin/ddp-ckpt" show "$1" | grep -E '^ *(model|optim)/' | sed 's/\].*/]/' | tr -s ' '; }

# same_arrays A B: all arrays are bitwise equal; only one of them may have the order of gradients, which is of buckets.
same_arrays() {
  run "$bin/ddp-ckpt" diff "$1" "$2"
  [[ $output == *" 0 different, "* ]]
  if grep 'only in [AB]:' <<< "$output" | grep -qv 'ddp/gradient_order'; then return 1; fi
}

# of_run KEY: a value of report/run.json, of objects as "comm.bytes_per_step"; of_report KEY: a value of `sharding`.
of_run() { python3 -c "import functools, json; print(functools.reduce(dict.get, '$1'.split('.'), json.load(open('report/run.json'))))"; }
of_report() { of_run "sharding.$1"; }

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
