#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The times at which ddp-train saves.

bats_require_minimum_version 1.5.0

load training

setup() { training_setup; }

model=(--model mlp --width 32 --batch 32 --data digits)

@test "saves by time happen after the same step on all ranks, and do not change the result" {
  run -0 ranks 2 "${model[@]}" --epochs 4
  whole=$(parameters)
  run -0 ranks 2 "${model[@]}" --epochs 4 --checkpoint-dir ck --checkpoint-every 0.001s --keep-last 1000
  [ "$(parameters)" = "$whole" ]
  [[ $output == *"  checkpoints    ck, every 0.001 s, the last 1,000"* ]]
  [ "$(compgen -G 'ck/step-*' | wc -l)" -ge 2 ]
  run -0 "$bin/ddp-ckpt" verify ck
  run -0 ranks 1 "${model[@]}" --epochs 4 --accumulate 2 --deterministic --checkpoint-dir ck
  [[ $output == *"nothing to do"* ]]
}
