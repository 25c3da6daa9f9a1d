#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train --shard gradients and parameters: each rank has its part of the gradients, or of the
# parameters, too, with the results and the checkpoints of a training without shards.

bats_require_minimum_version 1.5.0

load training

setup() {
  training_setup
  gpt=(--model gpt --width 32 --layers 3 --data "text:$here/README.md" --batch 8 --optimizer adamw --lr 0.002)
}

# same_with_and_without_shards RANKS
same_with_and_without_shards() {
  local mode whole words
  rm -rf whole
  run -0 ranks "$1" "${gpt[@]}" --steps 8 --checkpoint-dir whole
  whole=$(parameters)
  for mode in gradients parameters "parameters --keep-after-forward" "parameters --checkpoint-activations" hybrid; do
    read -ra words <<< "$mode"
    rm -rf shards
    run -0 ranks "$1" "${gpt[@]}" --steps 8 --checkpoint-dir shards --shard "${words[@]}"
    [ "$whole" = "$(parameters)" ]
    [[ $output == *"shards"*"the optimizer's state"*gradients* ]]
    run -0 "$bin/ddp-ckpt" verify shards
    [ "$(arrays whole)" = "$(arrays shards)" ]
    [ -n "$(arrays shards)" ]
    same_arrays whole shards
  done
}

@test "parameters and checkpoints are bitwise those of a training without shards" {
  same_with_and_without_shards 2
}

# bats test_tags=full
@test "parameters and checkpoints are bitwise those of a training without shards, on one and three ranks" {
  same_with_and_without_shards 1
  same_with_and_without_shards 3
}

# bats test_tags=full
@test "any strategy resumes any other, bitwise" {
  run -0 ranks 2 "${gpt[@]}" --steps 12
  whole=$(parameters)
  for pair in "none parameters" "parameters none" "parameters parameters" "optimizer parameters" \
    "parameters gradients" "gradients optimizer" "parameters hybrid" "hybrid none" "hybrid hybrid"; do
    read -r first second <<< "$pair"
    rm -rf ck
    run -0 ranks 2 "${gpt[@]}" --steps 6 --checkpoint-dir ck --shard "$first"
    run -0 ranks 2 "${gpt[@]}" --steps 12 --checkpoint-dir ck --shard "$second"
    [[ $output == *"resumed from"* ]]
    [ "$whole" = "$(parameters)" ]
  done
}

# bats test_tags=full
@test "parameters of four ranks are resumed by three, and by one" {
  run -0 ranks 4 "${gpt[@]}" --batch 6 --steps 6 --checkpoint-dir shards --shard parameters
  for n in 3 1; do
    rm -rf ck expected
    cp -r shards ck
    cp -r shards expected
    run -0 ranks $n "${gpt[@]}" --global-batch 24 --steps 10 --checkpoint-dir expected
    whole=$(parameters)
    run -0 ranks $n "${gpt[@]}" --global-batch 24 --steps 10 --checkpoint-dir ck --shard parameters
    [[ $output == *"resumed from"*"made by 4 ranks"* ]]
    [ "$whole" = "$(parameters)" ]
    same_arrays ck expected
  done
}

@test "weights are initialized from a file, and some are frozen" {
  run -0 ranks 1 "${gpt[@]}" --steps 3 --checkpoint-dir first
  for mode in none parameters hybrid; do
    run -0 ranks 3 "${gpt[@]}" --steps 4 --init-from first --freeze 'blocks.1.*' --freeze positions.weight \
      --checkpoint-dir "$mode" --shard $mode
    parameters > "$mode.parameters"
  done
  diff none.parameters parameters.parameters
  diff none.parameters hybrid.parameters
  same_arrays none parameters
  same_arrays none hybrid
}

# bats test_tags=full
@test "bf16 weights have the bits of a training without shards, and are resumed by any strategy and type" {
  half=(--precision bf16 --param-type bf16)
  run -0 ranks 2 "${gpt[@]}" "${half[@]}" --steps 4 --checkpoint-dir first
  run -0 ranks 2 "${gpt[@]}" "${half[@]}" --steps 8 --checkpoint-dir none --init-from first
  whole=$(parameters)
  for pair in "optimizer parameters" "gradients hybrid" "parameters optimizer" "hybrid parameters" "parameters none"; do
    read -r first second <<< "$pair"
    rm -rf ck
    run -0 ranks 2 "${gpt[@]}" "${half[@]}" --steps 5 --checkpoint-dir ck --init-from first --shard "$first"
    run -0 ranks 2 "${gpt[@]}" "${half[@]}" --steps 8 --checkpoint-dir ck --shard "$second"
    [[ $output == *"resumed from"* ]]
    [ "$whole" = "$(parameters)" ]
    same_arrays none ck
  done
  # Float32 weights continue from the masters.
  cp -r none ck4
  run -0 ranks 4 "${gpt[@]}" --global-batch 16 --precision bf16 --steps 10 --checkpoint-dir ck4 --shard parameters
  [[ $output == *"resumed from"*"made by 2 ranks"* ]]
  run -0 ranks 4 "${gpt[@]}" --global-batch 16 --precision bf16 --steps 10 --checkpoint-dir none
  same_arrays none ck4
}

# bats test_tags=full
@test "averages of the weights are evaluated, and resumed by any strategy" {
  evaluated() { grep -o 'eval loss [0-9.]*, accuracy [0-9.]*' <<< "$output" | tail -n 1; }
  run -0 ranks 2 "${gpt[@]}" --steps 12 --ema 0.9 --checkpoint-dir none
  whole="$(parameters) $(evaluated)"
  for pair in "none parameters" "parameters hybrid" "hybrid none"; do
    read -r first second <<< "$pair"
    rm -rf ck
    run -0 ranks 2 "${gpt[@]}" --steps 6 --ema 0.9 --checkpoint-dir ck --shard "$first"
    run -0 ranks 2 "${gpt[@]}" --steps 12 --ema 0.9 --checkpoint-dir ck --shard "$second"
    [ "$whole" = "$(parameters) $(evaluated)" ]
    same_arrays none ck
  done
}

# bats test_tags=full
@test "clipping and accumulation end with the same loss" {
  for mode in none gradients parameters hybrid; do
    run -0 ranks 2 "${gpt[@]}" --steps 6 --clip 0.5 --accumulate 2 --shard $mode
    grep -o 'train loss [0-9.]*' <<< "$output" | tail -n 1 > "$mode"
  done
  diff none gradients
  diff none parameters
  diff none hybrid
}

# bats test_tags=full
@test "updates that overflow are skipped by all ranks, and a loss scale changes no bit" {
  write_large_values
  for mode in none gradients parameters hybrid; do
    run -0 ranks 2 --model mlp --optimizer adamw --data hdf5:large.h5 --batch 10 --lr 0.001 --epochs 2 \
      --loss-scale 1e32 --on-nan skip --checkpoint-dir "$mode" --shard $mode
    parameters > "$mode.parameters"
    grep -o 'step [0-9]*: update skipped.*' <<< "$output" > "$mode.skipped"
    [[ $(cat "$mode.skipped") == *"the gradients overflowed with a loss scale of 1e+32, which is now 5e+31"* ]]
  done
  for mode in gradients parameters hybrid; do
    diff none.parameters $mode.parameters
    diff none.skipped $mode.skipped
    same_arrays none $mode
  done
}

# bats test_tags=full
@test "one rank resumes the state of weights that it freezes" {
  run -0 ranks 2 "${gpt[@]}" --steps 3 --checkpoint-dir ck --shard parameters
  for mode in optimizer parameters; do
    rm -rf one
    cp -r ck one
    run -0 ranks 1 "${gpt[@]}" --steps 5 --checkpoint-dir one --freeze 'blocks.1.*' --shard $mode
    [[ $output == *"resumed from"* ]]
  done
}

# bats test_tags=full
@test "the order of gradients outlives steps with shards" {
  for mode in none parameters none; do
    steps=$((${steps:-0} + 3))
    run -0 ranks 2 "${gpt[@]}" --steps $steps --checkpoint-dir ck --shard $mode
    run -0 "$bin/ddp-ckpt" show ck
    [[ $output == *"ddp/gradient_order"* ]]
  done
}

# bats test_tags=full
@test "ranks with other units, and a directory that a rank does not see, are refused at the start" {
  run -2 timeout 100 mpirun -n 1 "$train" "${gpt[@]}" --steps 2 --shard parameters : \
    -n 1 "$train" "${gpt[@]}" --steps 2 --shard parameters --keep-after-forward
  [[ $(spoken) == *reshard_after_forward* ]]
  unshare --mount true || skip "no right to make namespaces (needs root)"
  mkdir ck empty
  export train
  # shellcheck disable=SC2016  # expanded in each rank's shell
  run -2 timeout 100 mpirun -n 2 unshare --mount bash -c '
    [ "$OMPI_COMM_WORLD_RANK" -ne 1 ] || mount --bind empty ck
    exec "$train" --checkpoint-dir ck "$@"' rank "${gpt[@]}" --steps 2 --shard parameters
  [[ $(spoken) == *"rank 1 on "*" cannot see ck, which rank 0 uses on "* ]]
}

@test "a rank that is killed with sharded parameters ends the others, which name it" {
  killed_rank_is_named 'step 5' "${gpt[@]}" --epochs 100000 --log-every 1 --shard parameters
}

# bats test_tags=full
@test "a rank that is killed with common parameters ends the others, which name it" {
  killed_rank_is_named 'step 5' "${gpt[@]}" --epochs 100000 --log-every 1 --shard hybrid
}

@test "no room for common parameters is an error on all ranks" {
  unshare --mount true || skip "no right to make namespaces (needs root)"
  export train
  # shellcheck disable=SC2016  # expanded in the shell of the namespace
  run -1 timeout 100 unshare --mount bash -c '
    mount -t tmpfs -o size=4m tmpfs /dev/shm
    exec mpirun --mca btl self,tcp --mca pml ob1 -n 2 "$train" "$@"' job --model mlp --width 1024 --data synthetic --steps 2 --shard hybrid
  [[ $(spoken) == *"no room in /dev/shm for the parameters that the ranks of a node have in common"*"--shard gradients"* ]]
}

@test "little room in /dev/shm is a warning, and names that were left there are removed after an hour" {
  unshare --mount true || skip "no right to make namespaces (needs root)"
  export train
  # shellcheck disable=SC2016  # expanded in the shell of the namespace
  run -0 timeout 100 unshare --mount bash -c '
    mount -t tmpfs -o size=300k tmpfs /dev/shm
    touch -d "2 hours ago" /dev/shm/slurm-ddp-old
    touch /dev/shm/slurm-ddp-new
    mpirun --mca btl self,tcp --mca pml ob1 -n 2 "$train" "$@"
    ls /dev/shm' job --model mlp --width 512 --data synthetic --steps 2
  [ "$(grep -c "no room in /dev/shm for .* bytes of a rank, so that ranks of a node send each other messages" <<< "$output")" -eq 1 ]
  [[ $output == *"slurm-ddp-new"* && $output != *"slurm-ddp-old"* ]]
}

@test "what does not go together with sharded parameters is refused with one sentence" {
  refused 2 "mnist-cnn has no blocks that could be whole only while they compute" --steps 1 --model mnist-cnn --shard parameters
  refused 2 "--keep-after-forward is for GPUs with --shard hybrid" --steps 1 --shard hybrid --keep-after-forward
  refused 2 "ShardedDataParallel does not go together with a communication hook" --steps 1 --shard gradients --comm-hook bf16
}

# Of the 2.7 GiB that four ranks need for 8 layers without shards, 0.6 are for libraries and batches.
# bats test_tags=full
@test "in memory that is too small for a model, one of three times the size trains with shards" {
  export MALLOC_MMAP_THRESHOLD_=1000000 MALLOC_TRIM_THRESHOLD_=1000000
  mlp=(mpirun --oversubscribe -n 4 "$train" --model mlp --width 2048 --optimizer adamw --batch 16
    --data synthetic --steps 4 --layers)
  for mode in parameters hybrid; do
    run -0 in_limited_memory 2560 timeout 200 "${mlp[@]}" 24 --shard "$mode"
    [[ $output == *"done: 4 steps"* ]]
  done
  run in_limited_memory 2560 timeout 200 "${mlp[@]}" 8
  [ "$status" -ne 0 ]
  [[ $output != *"done: 4 steps"* ]]
}
