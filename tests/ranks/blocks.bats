#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train --blocks: a training that does not depend on the number of ranks.

bats_require_minimum_version 1.5.0

load training

setup() {
  training_setup
  gpt=(--model gpt --width 32 --layers 2 --data "text:$here/README.md" --optimizer adamw --lr 0.002 --clip 1
    --global-batch 24 --blocks 12 --log-every 1)
}

# Prints the loss of each step, which has four digits.
losses() { grep -oE 'step [0-9,/]+ .*loss [0-9.]+' <<< "$output" | grep -oE '[0-9.]+$'; }

# same_losses A B: they may differ by the order of sums.
same_losses() {
  python3 - "$1" "$2" <<'PYTHON'
import sys

a, b = ([float(word) for word in text.split()] for text in sys.argv[1:])
assert len(a) == len(b) and len(a) > 0, (a, b)
assert all(abs(x - y) <= 2e-3 for x, y in zip(a, b)), (a, b)
PYTHON
}

# dropout N ARGS...: trains with N ranks a model that drops half of its values at random.
dropout() {
  local n=$1
  shift
  timeout 180 mpirun -n "$n" "${bin%/bin}/tests/dropout_ranks" "$@"
}

# bats test_tags=full
@test "each number of ranks that divides the blocks has the same samples and the same dropout" {
  run -0 dropout 1 20
  alone=$(losses)
  for n in 2 3 4; do
    run -0 dropout "$n" 20
    same_losses "$alone" "$(losses)"
  done
  run -0 ranks 1 "${gpt[@]}" --steps 8
  [[ $output == *"global batch 24: 12 blocks of 2, 12 for each of 1 rank; the same on 1, 2, 3, 4, 6 or 12 ranks"* ]]
  alone=$(losses)
  run -0 ranks 3 "${gpt[@]}" --steps 8
  same_losses "$alone" "$(losses)"
}

# bats test_tags=full
@test "a run that is resumed by other numbers of ranks has the losses of one process" {
  run -0 dropout 1 60 # more than one epoch
  expected=$(losses)
  joined=
  for part in "4 10" "3 25" "2 45" "4 60"; do
    read -r n steps <<< "$part"
    run -0 dropout "$n" "$steps" ck
    [[ $output != *"in the saved run"* ]]
    joined+=" $(losses)"
  done
  same_losses "$expected" "$joined"
}

@test "a resumed run with other blocks says so" {
  run -0 ranks 1 "${gpt[@]}" --steps 2 --checkpoint-dir ck
  run -0 ranks 1 "${gpt[@]}" --blocks 6 --steps 4 --checkpoint-dir ck
  [[ $output == *"blocks was 12 in the saved run and is 6 now"* ]]
}

# bats test_tags=full
@test "shards have the same losses, and the bits if gradients are added before they are sent" {
  gpt+=(--clip 0) # of parts, a norm is rounded in another way
  run -0 ranks 2 "${gpt[@]}" --steps 6
  whole=$(parameters)
  alone=$(losses)
  for mode in gradients parameters; do
    run -0 ranks 2 "${gpt[@]}" --steps 6 --shard "$mode"
    same_losses "$alone" "$(losses)"
  done
  for mode in optimizer "gradients --reduce-once"; do
    read -ra words <<< "$mode"
    run -0 ranks 2 "${gpt[@]}" --steps 6 --shard "${words[@]}"
    [ "$whole" = "$(parameters)" ]
  done
}

@test "blocks that cannot be divided are refused with the numbers of ranks that can" {
  refused_by_two 2 "the 9 blocks of a step (--blocks) cannot be divided equally among 2 ranks; use 1 or 3 ranks" \
    "${gpt[@]}" --global-batch 18 --blocks 9 --steps 1
  refused 2 "a global batch of 24 cannot be divided into 7 blocks of one size; use 21 or 28" "${gpt[@]}" --blocks 7
  refused 2 "--blocks does not go together with --accumulate" "${gpt[@]}" --accumulate 2
  refused 2 "--blocks divides the batch of a step; give that, too, as --global-batch" "${gpt[@]}" --global-batch 0
}

@test "with --deterministic any number of ranks has the same bits, also if it changes" {
  gpt+=(--deterministic)
  run -0 ranks 1 "${gpt[@]}" --steps 6
  expected=$(parameters)
  [ -n "$expected" ]
  run -0 ranks 4 "${gpt[@]}" --steps 6
  [ "$(parameters)" = "$expected" ]
  for part in "4 2" "3 4" "2 6"; do
    read -r n steps <<< "$part"
    run -0 ranks "$n" "${gpt[@]}" --steps "$steps" --checkpoint-dir ck
  done
  [ "$(parameters)" = "$expected" ]
}

# bats test_tags=full
@test "with --deterministic the running averages of batch normalization do not depend on the ranks either" {
  cnn=(--model cifar-cnn --data synthetic --global-batch 24 --blocks 6 --deterministic --steps 4)
  run -0 ranks 1 "${cnn[@]}" --checkpoint-dir one
  expected=$(parameters)
  run -0 ranks 3 "${cnn[@]}" --checkpoint-dir three
  [ "$(parameters)" = "$expected" ]
  run "$bin/ddp-ckpt" diff one three # rank 1 and 2 have generators, too
  [[ $output == *" arrays bitwise equal, 0 different, 0 only in A, 2 only in B" ]]
}

# bats test_tags=full
@test "with --deterministic, ZeRO-1 and bf16 weights have the same bits on other numbers of ranks" {
  for more in "--shard optimizer" "--param-type bf16 --precision bf16 --on-nan skip"; do
    read -ra words <<< "$more"
    run -0 ranks 2 "${gpt[@]}" --deterministic --steps 2 "${words[@]}"
    expected=$(parameters)
    run -0 ranks 3 "${gpt[@]}" --deterministic --steps 2 "${words[@]}"
    [ "$(parameters)" = "$expected" ]
  done
}

@test "what changes the order of sums is refused with --deterministic and --blocks" {
  both="--deterministic with --blocks does not go together with"
  refused 2 "$both --shard gradients, parameters or hybrid; use --shard optimizer" \
    "${gpt[@]}" --deterministic --shard gradients
  refused 2 "$both --comm-hook" "${gpt[@]}" --deterministic --comm-hook bf16
  refused 2 "$both --reduce-type" "${gpt[@]}" --deterministic --reduce-type bf16
}
