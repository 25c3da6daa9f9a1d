#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train --shard: the optimizer's state divided among the ranks, with the results and the
# checkpoints of a training without shards.

bats_require_minimum_version 1.5.0

load training

setup() { training_setup; }

adamw=(--model mnist-cnn --optimizer adamw --lr 0.002 --weight-decay 0.1 --batch 32)

# arrays DIRECTORY: the names, types and shapes in the newest checkpoint.
arrays() { "$bin/ddp-ckpt" show "$1" | grep -E '^ *(model|optim)/'; }

@test "parameters and checkpoints are bitwise the same with and without shards" {
  for n in 1 2 3; do
    run -0 ranks $n "${adamw[@]}" --epochs 2 --checkpoint-dir "whole$n"
    whole=$(parameters)
    run -0 ranks $n "${adamw[@]}" --epochs 2 --checkpoint-dir "shards$n" --shard optimizer
    [ "$whole" = "$(parameters)" ]
    [[ $output == *"each rank has its part of the optimizer's state"* ]]
    run -0 "$bin/ddp-ckpt" verify "shards$n"
    [ "$(arrays "whole$n")" = "$(arrays "shards$n")" ]
    [ -n "$(arrays "shards$n")" ]
    run -0 "$bin/ddp-ckpt" diff "whole$n" "shards$n"
  done
}

@test "sgd and adam with clipping, accumulation and an average of the weights end with the same bits" {
  for options in "--optimizer sgd --clip 1" "--optimizer adam --accumulate 2 --ema 0.9" "--optimizer sgd --momentum 0"; do
    read -ra words <<< "$options"
    run -0 ranks 2 --epochs 2 --batch 16 "${words[@]}"
    whole=$(parameters)
    run -0 ranks 2 --epochs 2 --batch 16 "${words[@]}" --shard optimizer
    [ "$whole" = "$(parameters)" ]
  done
}

@test "a training with or without shards resumes one with or without them, bitwise" {
  run -0 ranks 2 "${adamw[@]}" --epochs 3
  whole=$(parameters)
  for pair in "none optimizer" "optimizer none" "optimizer optimizer"; do
    read -r first second <<< "$pair"
    rm -rf ck
    run -0 ranks 2 "${adamw[@]}" --epochs 1 --checkpoint-dir ck --shard "$first"
    run -0 ranks 2 "${adamw[@]}" --epochs 3 --checkpoint-dir ck --shard "$second"
    [[ $output == *"resumed from"* ]]
    [ "$whole" = "$(parameters)" ]
  done
}

@test "shards of one number of ranks are resumed by another number" {
  run -0 ranks 2 "${adamw[@]}" --global-batch 64 --epochs 1 --checkpoint-dir ck --shard optimizer
  cp -r ck other
  run -0 ranks 4 "${adamw[@]}" --global-batch 64 --epochs 2 --checkpoint-dir ck --shard optimizer
  [[ $output == *"resumed from"* ]]
  four=$(parameters)
  run -0 ranks 4 "${adamw[@]}" --global-batch 64 --epochs 2 --checkpoint-dir other
  [[ $output == *"resumed from"* ]]
  [ "$four" = "$(parameters)" ]
}

@test "a rank that is killed with shards ends the others, which name it" {
  ranks 3 "${adamw[@]}" --data synthetic --steps 1000000 --shard optimizer > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q 'epoch 1/' log
  kill -KILL "$(rank_pids "$job" | sed -n 2p)"
  status=0
  wait "$job" || status=$?
  [ "$status" -ne 0 ]
  grep -E 'rank 1 .*exited unexpectedly' log
}

@test "what does not go together with shards is refused with one sentence" {
  refused 2 "--shard must be none or optimizer, not 'gradients'" --steps 1 --shard gradients
  refused 2 "--shard optimizer does not go together with bf16 weights (--param-type) yet" \
    --steps 1 --shard optimizer --precision bf16 --param-type bf16
  refused 2 "--comm-hook noop leaves each rank its own gradients" --steps 1 --shard optimizer --comm-hook noop
  refused 2 "ranks in different steps cannot divide an update among themselves" \
    --steps 1 --shard optimizer --staleness 1
}
