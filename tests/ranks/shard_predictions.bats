#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What ddp-train predicts of each strategy of --shard, beside what it measures.

bats_require_minimum_version 1.5.0

load training

setup() {
  training_setup
  # A layer has 4 MiB.
  mlp=(--model mlp --width 1024 --layers 8 --data synthetic --batch 8 --optimizer adamw)
  # Otherwise the heap of the C library keeps memory that was freed, by chance.
  export MALLOC_MMAP_THRESHOLD_=1000000 MALLOC_TRIM_THRESHOLD_=1000000
}

# cell STRATEGY COLUMN: of the printed table.
cell() { sed -n "s/^[* ] $1  *\([0-9].*\)/\1/p" <<< "$output" | awk "{ print \$$2 }"; }

@test "a dry run prints all strategies, and the peak beside the one that it has used" {
  for mode in none optimizer gradients parameters "parameters --keep-after-forward" hybrid; do
    read -ra words <<< "$mode"
    run -0 ranks 2 "${mlp[@]}" --dry-run --shard "${words[@]}"
    [[ $output == *"dry run: one step took"* ]]
    for row in none optimizer gradients parameters "parameters --keep-after-forward" hybrid; do
      [ -n "$(cell "$row" 1)" ]
      if [ "$row" = "$mode" ]; then
        [ "$(grep -c '^\* ' <<< "$output")" -eq 1 ]
        grep "^\* $row  " <<< "$output"
        # The optimizer's state is made at the end of the only step. 20 MiB are for all else.
        python3 -c "assert 0.8 * $(cell "$row" 1) < $(cell "$row" 4) < $(cell "$row" 1) + $(cell "$row" 2) + 20"
      else
        [ -z "$(cell "$row" 4)" ]
      fi
    done
  done
  # Weights, gradients and two tensors of state.
  p=$(python3 -c "print($(cell none 1) / 4)")
  python3 -c "
assert 20 < $p < 40
assert abs($(cell optimizer 1) - 3 * $p) < 0.2
assert $(cell parameters 1) < $(cell gradients 1) < $(cell optimizer 1)
assert $(cell 'parameters --keep-after-forward' 2) > $(cell parameters 2)
assert $(cell parameters 3) == 0"
}

@test "a model without units has no row of sharded parameters" {
  run -0 ranks 2 --model mnist-cnn --data synthetic --batch 4 --dry-run
  [ -n "$(cell optimizer 1)" ]
  [ -z "$(cell parameters 1)" ]
}

# bats test_tags=full
@test "run.json and the report have the strategy, the prediction and the peak" {
  for mode in none optimizer gradients parameters hybrid; do
    rm -rf report
    run -0 ranks 2 "${mlp[@]}" --steps 4 --shard $mode --report-dir report
    [ "$(of_report strategy)" = $mode ]
    [ "$(of_report divided_by)" = "$([ $mode = none ] && echo 1 || echo 2)" ]
    [ "$(of_report predicted_bytes_sent_per_step)" = 0 ]
    python3 -c "
between, step = $(of_report predicted_bytes_between_steps), $(of_report predicted_bytes_in_step)
measured = $(of_report measured_peak_bytes)
print('$mode', between, step, measured)
assert 0.85 * (between + step) < measured < between + step + (20 << 20)"
    run -0 "$bin/ddp-report" run report
    [[ $output == *"sharding"*"$mode"*"memory per rank: "*" MiB measured"* ]]
  done
}

# bats test_tags=full
@test "a resumed run and one with micro-batches have predictions, an asynchronous one has none" {
  run -0 ranks 2 "${mlp[@]}" --steps 2 --shard parameters --accumulate 2 --checkpoint-dir ck --report-dir report
  run -0 ranks 2 "${mlp[@]}" --steps 4 --shard gradients --accumulate 2 --checkpoint-dir ck --report-dir report
  [ "$(of_report strategy)" = gradients ]
  [ "$(of_report measured_peak_bytes)" != None ]
  rm -rf report
  run -0 ranks 2 --model mlp --data digits --epochs 1 --staleness 1 --report-dir report
  run -0 python3 -c "import json; assert 'sharding' not in json.load(open('report/run.json'))"
}

# bats test_tags=full
@test "ddp-bench memory measures what it predicts" {
  for shard in none optimizer gradients parameters hybrid; do
    options=()
    if [ $shard != none ]; then options=(--shard "$shard"); fi
    run -0 timeout 180 mpirun -n 2 "$bin/ddp-bench" memory --width 1024 --batch 8 "${options[@]}" --json memory.json
    [[ $output == *"--shard $shard: memory of a rank"*"measured "*"predicted "* ]]
    python3 -c "
import json
result = json.load(open('memory.json'))
predicted, measured = result['sharding'], result['bytes']
assert predicted['strategy'] == '$shard'
between = predicted['predicted_bytes_between_steps']
step = between + predicted['predicted_bytes_in_step']
print('$shard', between, step, measured)
assert 0.95 * between < measured['after_step_3'] - measured['of_others'] < between + (20 << 20)
assert 0.9 * step < measured['peak_of_a_step'] - measured['of_others'] < step + (20 << 20)"
  done
}
