#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train --staleness with several processes: training results, resuming from checkpoints,
# unsupported options, and exit when a rank fails.

bats_require_minimum_version 1.5.0

load training

setup() { training_setup; }

# Compares steps.csv of both runs: the losses must be equal except for rounding.
same_losses() {
  python3 - "$1/steps.csv" "$2/steps.csv" <<'PY'
import csv, sys
a, b = ([float(row["loss"]) for row in csv.DictReader(open(name))] for name in sys.argv[1:])
assert len(a) == len(b) > 30, (len(a), len(b))
worst = max(abs(x - y) for x, y in zip(a, b))
assert worst < 1e-3, worst
PY
}

# bats test_tags=full
@test "without staleness, training equals synchronous training except for rounding, and resumes bitwise equal" {
  options=(--epochs 2 --batch 32 --weight-decay 1e-3 --warmup 10 --scale-lr --lr 0.02)
  run -0 ranks 3 "${options[@]}" --report-dir sync
  run -0 ranks 3 "${options[@]}" --report-dir stale --staleness 0
  whole=$(parameters)
  same_losses sync stale
  # The report distinguishes the two runs, and no rank was ever ahead.
  python3 -c "
import json
assert 'asynchronous' not in json.load(open('sync/run.json'))
assert json.load(open('stale/run.json'))['asynchronous']['largest_lead'] == 0"
  # Interrupts the run within an epoch.
  run -0 ranks 3 "${options[@]}" --staleness 0 --steps 20 --checkpoint-dir ck
  run -0 ranks 3 "${options[@]}" --staleness 0 --checkpoint-dir ck
  [[ $output == *"resumed from"*"step-00000020"* ]]
  [ "$(parameters)" = "$whole" ]
}

# bats test_tags=full
@test "asynchronous training resumes from a checkpoint of a synchronous run, including momentum" {
  options=(--epochs 2 --batch 32)
  run -0 ranks 2 "${options[@]}" --report-dir sync
  run -0 ranks 2 "${options[@]}" --steps 25 --checkpoint-dir mixed
  run -0 ranks 2 "${options[@]}" --staleness 0 --checkpoint-dir mixed --report-dir mixed-report
  python3 -c "
import json
a, b = (json.load(open(f'{d}/run.json'))['final']['eval_loss'] for d in ('sync', 'mixed-report'))
assert abs(a - b) < 1e-3, (a, b)"
}

# bats test_tags=full
@test "with staleness, a model learns digits, and no rank exceeds the limit" {
  run -0 ranks 4 --model mlp --epochs 25 --batch 16 --staleness 3 --report-dir report
  [[ $output == *"no rank more than 3 steps ahead of the slowest"* ]]
  python3 -c "
import json
r = json.load(open('report/run.json'))
assert r['final']['eval_accuracy'] > 0.9, r['final']
assert 0 <= r['asynchronous']['mean_lead'] <= r['asynchronous']['largest_lead'] <= 3, r['asynchronous']
b = r['comm']['bytes_per_step']
assert b == int(b) and b > r['parameters'] * 4, b"
}

@test "options that need all gradients at once are refused" {
  refused 2 "cannot be combined with --optimizer adamw: gradients are applied one by one" --staleness 2 --optimizer adamw
}

@test "a NaN loss stops all ranks, or only that update is skipped" {
  /usr/bin/python3 -c "
import h5py, numpy
x = numpy.random.default_rng(1).random((200, 4), 'float32')
x[33, 2] = numpy.nan
with h5py.File('nan.h5', 'w') as f:
    f['x'] = x
    f['y'] = numpy.arange(200) % 2"
  run -1 ranks 2 --data hdf5:nan.h5 --batch 10 --staleness 2
  [ "$(grep -c 'the loss is not finite on rank [01] in its step [0-9]; check' <<< "$output")" -eq 1 ]
  run -0 ranks 2 --data hdf5:nan.h5 --batch 10 --staleness 2 --on-nan skip
  [ "$(grep -c 'warning: rank [01] skipped the update of its step [0-9]: the loss is not finite' <<< "$output")" -eq 1 ]
  [[ $output =~ eval\ loss\ [0-9.]+, ]]
}

# disturbed SIGNAL OPTIONS...: three ranks train without end, and rank 1 gets a signal. Sets $status
# and $output.
disturbed() {
  local signal=$1 job
  shift
  OMPI_MCA_orte_enable_recovery=1 timeout -k 5 90 mpirun --enable-recovery -n 3 "$train" \
    --epochs 100000 --batch 4 --staleness 2 --log-every 50 "$@" > out 2>&1 &
  job=$!
  for _ in $(seq 600); do
    grep -q 'step 50/' out && break
    sleep 0.1
  done
  grep -q 'step 50/' out
  kill "-$signal" "$(pid_of_rank 1 "$train")"
  status=0
  wait "$job" || status=$?
}

@test "a killed rank stops all others and is named" {
  disturbed KILL
  cat out
  [ "$status" -ne 0 ] && ended_in_time "$status"
  grep -E '^ddp-train: rank 1 \(.*\) exited unexpectedly' out
}

# bats test_tags=full
@test "a stopped rank is identified when the timeout expires" {
  disturbed STOP --timeout 3
  cat out
  [ "$status" -ne 0 ] && ended_in_time "$status"
  grep -E '^ddp-train: rank 1 \(.*\) does not answer: stopped.*; rank [02] waited 3 s after step [0-9]+ for (rank 1, which has completed [0-9]+ steps|an answer from the server of rank 1)' out
}
