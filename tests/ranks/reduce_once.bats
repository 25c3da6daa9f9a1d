#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train --reduce-once: whole gradients are kept until the last micro-batch.

bats_require_minimum_version 1.5.0

load training

setup() {
  training_setup
  gpt=(--model gpt --width 32 --layers 3 --data "text:$here/README.md" --batch 4 --optimizer adamw --lr 0.002 --accumulate 3)
}

# bats test_tags=full
@test "micro-batches end with the bits of a training without shards" {
  for more in "" "--reduce-type bf16" "--precision bf16 --param-type bf16" \
    "--precision bf16 --param-type bf16 --reduce-type fp32" "--loss-scale 1024 --on-nan skip"; do
    read -ra options <<< "$more"
    rm -rf none
    run -0 ranks 2 "${gpt[@]}" --steps 6 "${options[@]}" --checkpoint-dir none
    whole=$(parameters)
    for mode in gradients parameters "parameters --keep-after-forward" hybrid; do
      read -ra words <<< "$mode"
      rm -rf ck
      run -0 ranks 2 "${gpt[@]}" --steps 3 "${options[@]}" --reduce-once --checkpoint-dir ck --shard "${words[@]}"
      run -0 ranks 2 "${gpt[@]}" --steps 6 "${options[@]}" --reduce-once --checkpoint-dir ck --shard "${words[@]}" --report-dir report
      [ "$whole" = "$(parameters)" ]
      [ "$(of_report reduce_once)" = True ]
    done
  done
  # Otherwise they round in another order.
  run -0 ranks 2 "${gpt[@]}" --steps 6 --shard gradients
  each=$(parameters)
  run -0 ranks 2 "${gpt[@]}" --steps 6 --shard gradients --reduce-once
  [ "$each" != "$(parameters)" ]
}

# bats test_tags=full
@test "whole gradients take the memory that is predicted" {
  export MALLOC_MMAP_THRESHOLD_=1000000 MALLOC_TRIM_THRESHOLD_=1000000
  mlp=(--model mlp --width 1024 --layers 8 --data synthetic --batch 8 --optimizer adamw --accumulate 2)
  for mode in gradients parameters hybrid; do
    run -0 ranks 2 "${mlp[@]}" --steps 4 --shard $mode --report-dir report
    each=$(of_report predicted_bytes_in_step)
    run -0 ranks 2 "${mlp[@]}" --steps 4 --shard $mode --reduce-once --report-dir report
    python3 -c "
between, step = $(of_report predicted_bytes_between_steps), $(of_report predicted_bytes_in_step)
measured = $(of_report measured_peak_bytes)
print('$mode', between, step, measured)
assert step > $each + (20 << 20)
assert 0.85 * (between + step) < measured < between + step + (20 << 20)"
  done
}
