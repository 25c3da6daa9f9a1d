#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train --shard: the optimizer's state divided among the ranks, with the results and the
# checkpoints of a training without shards.

bats_require_minimum_version 1.5.0

load training

setup() { training_setup; }

adamw=(--model mnist-cnn --optimizer adamw --lr 0.002 --weight-decay 0.1 --batch 32)

# flip FILE PART: flips bits of a byte behind PART percent of the file.
flip() {
  local at=$(($(stat -c %s "$1") * $2 / 100))
  printf '%b' "\\x$(printf %02x $(($(od -An -tu1 -j "$at" -N 1 "$1") ^ 255)))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

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

# bats test_tags=full
@test "a checkpoint of three ranks is resumed by two, and by one without shards" {
  run -0 ranks 3 "${adamw[@]}" --global-batch 96 --epochs 1 --checkpoint-dir shards --shard optimizer
  run -0 ranks 3 "${adamw[@]}" --global-batch 96 --epochs 1 --checkpoint-dir whole
  run -0 "$bin/ddp-ckpt" diff shards whole
  for pair in "2 optimizer" "1 none" "1 optimizer"; do
    read -r n mode <<< "$pair"
    rm -rf ck expected
    cp -r shards ck
    cp -r whole expected
    run -0 ranks "$n" "${adamw[@]}" --global-batch 96 --epochs 2 --checkpoint-dir expected
    whole=$(parameters)
    run -0 ranks "$n" "${adamw[@]}" --global-batch 96 --epochs 2 --checkpoint-dir ck --shard "$mode"
    [[ $output == *"resumed from"*"made by 3 ranks"* ]]
    [ "$whole" = "$(parameters)" ]
    run -0 "$bin/ddp-ckpt" diff ck expected
  done
}

@test "each rank writes about its part of a checkpoint" {
  run -0 ranks 3 --model mlp --width 300 --layers 4 --optimizer adamw --steps 2 --checkpoint-dir ck --shard optimizer
  sizes=$(stat -c %s ck/step-*/rank-0000?-of-00003.h5)
  [ "$(wc -l <<< "$sizes")" -eq 3 ]
  awk '{ all += $1; size[NR] = $1 }
    END { for (i in size) if (size[i] < 0.3 * all || size[i] > 0.37 * all) exit 1 }' <<< "$sizes"
}

@test "the best checkpoint is that of a training without shards, and is resumed" {
  run -0 ranks 3 "${adamw[@]}" --lr 0.02 --epochs 3 --checkpoint-dir whole --keep-best
  whole=$(parameters)
  [ "$(cd whole/best && echo step-*)" = step-00000032 ]
  run -0 ranks 3 "${adamw[@]}" --lr 0.02 --epochs 3 --checkpoint-dir shards --keep-best --shard optimizer
  [ "$whole" = "$(parameters)" ]
  [ "$(cd shards/best && echo step-*)" = step-00000032 ]
  [ "$(compgen -G "shards/best/step-*/rank-0000?-of-00003.h5" | wc -l)" -eq 3 ]
  run -0 "$bin/ddp-ckpt" verify shards/best
  run -0 "$bin/ddp-ckpt" diff whole/best shards/best
  # Training from it again ends as the first time.
  run -0 ranks 3 "${adamw[@]}" --lr 0.02 --epochs 3 --checkpoint-dir other --resume shards/best/step-* --shard optimizer
  [[ $output == *"resumed from"*"/shards/best/step-"* ]]
  [ "$whole" = "$(parameters)" ]
}

@test "a best checkpoint that a rank cannot write is a warning that names the rank, and training continues" {
  unshare --mount true || skip "no right to make namespaces (needs root)"
  mkdir -p ck/best
  export train
  # shellcheck disable=SC2016  # expanded in each rank's shell
  run -0 timeout 180 mpirun -n 2 unshare --mount bash -c '
    [ "$OMPI_COMM_WORLD_RANK" -ne 1 ] || { mount --bind ck/best ck/best && mount -o remount,bind,ro ck/best; }
    exec "$train" "$@"' rank "${adamw[@]}" --epochs 2 --checkpoint-dir ck --keep-best --shard optimizer
  echo "$output"
  [[ $output == *"the best checkpoint, of step "*" was not saved: rank 1: "*"Read-only file system"* ]]
  [[ $output == *"done: "* ]]
  [ -z "$(ls -A ck/best)" ]
  run -0 "$bin/ddp-ckpt" verify ck
}

# bats test_tags=full
@test "a damaged file of any rank makes all ranks resume from an older checkpoint" {
  run -0 ranks 3 "${adamw[@]}" --epochs 3
  whole=$(parameters)
  run -0 ranks 3 "${adamw[@]}" --epochs 2 --checkpoint-dir saved --shard optimizer
  newest=$(basename "$(compgen -G 'saved/step-*' | sort | tail -n 1)")
  older=$(basename "$(compgen -G 'saved/step-*' | sort | tail -n 2 | head -n 1)")
  [ "$newest" != "$older" ]
  for rank in 0 1 2; do
    for how in truncate remove flip; do
      rm -rf ck
      cp -r saved ck
      file=ck/$newest/rank-0000$rank-of-00003.h5
      case $how in
        truncate) truncate -s -1000 "$file" ;;
        remove) rm "$file" ;;
        flip) flip "$file" 50 ;;
      esac
      run -0 ranks 3 "${adamw[@]}" --epochs 3 --checkpoint-dir ck --shard optimizer
      echo "$how $rank: $output"
      [[ $output == *"skipped checkpoint "*"/$newest"*"resumed from "*"/$older "* ]]
      [ "$whole" = "$(parameters)" ]
    done
  done
  # Without an older one, all exit.
  rm -rf ck
  cp -r saved ck
  for file in ck/step-*/rank-00001-of-00003.h5; do flip "$file" 50; done
  run -1 ranks 3 "${adamw[@]}" --epochs 3 --checkpoint-dir ck --shard optimizer
  echo "$output"
  [[ $output == *"none of the 2 checkpoints in "*" is whole"* ]]
}

# bats test_tags=full
@test "a rank that does not see the checkpoint gets its rows from rank 0" {
  unshare --mount true || skip "no right to make namespaces (needs root)"
  mkdir empty
  export train
  for type in fp32 bf16; do
    half=(--precision bf16 --param-type "$type")
    rm -rf ck
    run -0 ranks 3 "${adamw[@]}" "${half[@]}" --epochs 2
    whole=$(parameters)
    run -0 ranks 3 "${adamw[@]}" "${half[@]}" --epochs 1 --checkpoint-dir ck --shard optimizer
    # shellcheck disable=SC2016  # expanded in each rank's shell
    run -0 timeout 180 mpirun -n 3 unshare --mount bash -c '
      [ "$OMPI_COMM_WORLD_RANK" -ne 1 ] || mount --bind empty ck
      exec "$train" --resume ck/step-* "$@"' rank "${adamw[@]}" "${half[@]}" --epochs 2 --shard optimizer
    echo "$output"
    [[ $output == *"resumed from"* ]]
    [ "$whole" = "$(parameters)" ]
  done
}

@test "a rank that is killed with shards ends the others, which name it" {
  killed_rank_is_named 'epoch 1/' "${adamw[@]}" --data synthetic --steps 1000000 --shard optimizer
}

@test "what does not go together with shards is refused with one sentence" {
  for mode in optimizer gradients parameters hybrid; do
    refused 2 "ranks in different steps cannot divide an update among themselves" \
      --model mlp --steps 1 --shard $mode --staleness 1
  done
}
