#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train --reduce-type: gradients are sent and added up in another type than their own.

bats_require_minimum_version 1.5.0

load training

setup() {
  training_setup
  gpt=(--model gpt --width 32 --layers 3 --data "text:$here/README.md" --batch 8 --optimizer adamw --lr 0.002)
  modes=(none optimizer gradients parameters "parameters --keep-after-forward" hybrid)
}

# all_alike ARGS...: runs all strategies, whose parameters must be the same; prints these.
all_alike() {
  local mode words whole=
  for mode in "${modes[@]}"; do
    read -ra words <<< "$mode"
    run -0 ranks 2 "${gpt[@]}" --steps 6 --report-dir report --shard "${words[@]}" "$@"
    [ -n "$(parameters)" ]
    : "${whole:=$(parameters)}"
    [ "$whole" = "$(parameters)" ] || return 1
  done
  echo "$whole" > same
}

# bats test_tags=full
@test "float32 gradients are reduced in bf16 with the same bits by all strategies" {
  all_alike --reduce-type bf16
  [ "$(of_report reduce_type)" = bf16 ]
  [[ $output == *"gradients added up in bf16"* ]]
  run -0 ranks 2 "${gpt[@]}" --steps 6 --comm-hook bf16
  [ "$(cat same)" = "$(parameters)" ]
  run -0 ranks 2 "${gpt[@]}" --steps 6 --shard gradients
  [ "$(cat same)" != "$(parameters)" ]
}

# bats test_tags=full
@test "gradients of bf16 weights are reduced in fp32 with the same bits by all strategies" {
  half=(--precision bf16 --param-type bf16)
  all_alike "${half[@]}" --reduce-type fp32
  [ "$(of_report reduce_type)" = fp32 ]
  run -0 ranks 2 "${gpt[@]}" --steps 6 --shard gradients "${half[@]}"
  [ "$(cat same)" != "$(parameters)" ]
}

# bats test_tags=full
@test "half of the bytes are reduced, and the memory is predicted" {
  for mode in none gradients hybrid; do
    run -0 ranks 2 "${gpt[@]}" --steps 2 --report-dir report --shard "$mode"
    count=$(of_run parameters)
    between=$(of_report predicted_bytes_between_steps)
    bytes=$(of_run comm.bytes_per_step)
    run -0 ranks 2 "${gpt[@]}" --steps 2 --report-dir report --shard "$mode" --reduce-type bf16
    python3 -c "assert abs($(of_run comm.bytes_per_step) - $bytes / 2) < 1, ($(of_run comm.bytes_per_step), $bytes)"
    if [ "$mode" = none ]; then
      # What is sent is beside the gradients.
      [ "$(of_report predicted_bytes_between_steps)" -eq $((between + 2 * count)) ]
    else
      # The two buffers are half as large.
      [ "$(of_report predicted_bytes_between_steps)" -lt "$between" ]
    fi
  done
}

# bats test_tags=full
@test "the measured memory is that of the prediction" {
  export MALLOC_MMAP_THRESHOLD_=1000000 MALLOC_TRIM_THRESHOLD_=1000000
  mlp=(--model mlp --width 1024 --layers 8 --data synthetic --batch 8 --optimizer adamw)
  for more in "--reduce-type bf16" "--precision bf16 --param-type bf16 --reduce-type fp32"; do
    read -ra options <<< "$more"
    for mode in none gradients parameters hybrid; do
      run -0 ranks 2 "${mlp[@]}" --steps 4 --shard $mode "${options[@]}" --report-dir report
      python3 -c "
predicted = $(of_report predicted_bytes_between_steps) + $(of_report predicted_bytes_in_step)
measured = $(of_report measured_peak_bytes)
print('$mode', predicted, measured)
assert 0.9 * predicted < measured < predicted + (20 << 20)"
    done
  done
}

# bats test_tags=full
@test "a run is resumed with another type, also with clipping, accumulation and a loss scale" {
  more=(--clip 1 --accumulate 2 --loss-scale 1024 --on-nan skip)
  for mode in gradients parameters hybrid; do
    rm -rf ck
    run -0 ranks 2 "${gpt[@]}" "${more[@]}" --steps 4 --checkpoint-dir ck --shard "$mode" --reduce-type bf16
    run -0 ranks 2 "${gpt[@]}" "${more[@]}" --steps 8 --checkpoint-dir ck --shard "$mode"
    [[ $output == *"resumed from"* ]]
    [[ $output == *"reduce_type was bf16 in the saved run and is auto now"* ]]
    parameters > "$mode"
  done
  diff gradients parameters
  diff gradients hybrid
  run -0 ranks 2 "${gpt[@]}" "${more[@]}" --steps 8 --shard gradients
  [ "$(cat gradients)" != "$(parameters)" ]
}

@test "errors say what to do" {
  refused 2 "does not go together with a reduce type (--reduce-type)" --steps 1 --reduce-type bf16 --comm-hook bf16
  refused 2 "or use --reduce-type bf16, which halves the bytes" --steps 1 --shard gradients --comm-hook bf16
  refused 2 "--staleness cannot be combined with --reduce-type" --steps 1 --staleness 1 --reduce-type bf16
}
