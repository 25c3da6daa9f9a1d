#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train --offload-optimizer: the optimizer's state is in files of the ranks.

bats_require_minimum_version 1.5.0

load training

setup() {
  training_setup
  # Weights that are large enough for the file even in parts of three ranks.
  mlp=(--model mlp --width 512 --layers 3 --data digits --batch 16 --optimizer adamw --lr 0.002)
  mkdir disk
  case $(stat -f -c %T disk) in tmpfs | ramfs) skip "the directory for temporary files is in memory" ;; esac
}

teardown() { unmount_disk; }


# bats test_tags=full
@test "the state in files changes no bit, of no strategy, and checkpoints are the same" {
  for n in 1 3; do
    rm -rf none
    run -0 ranks $n "${mlp[@]}" --steps 6 --checkpoint-dir none
    whole=$(parameters)
    for mode in none optimizer gradients parameters hybrid; do
      rm -rf ck
      run -0 ranks $n "${mlp[@]}" --steps 6 --checkpoint-dir ck --shard $mode --offload-optimizer disk
      [[ $output == *"offload"*"the optimizer's state is in files in disk"* ]]
      [ "$whole" = "$(parameters)" ]
      same_arrays none ck
      [ -z "$(ls disk)" ]
    done
  done
}

@test "runs with and without the state in files resume each other" {
  run -0 ranks 2 "${mlp[@]}" --steps 9
  whole=$(parameters)
  for mode in none parameters; do
    rm -rf ck
    run -0 ranks 2 "${mlp[@]}" --steps 3 --checkpoint-dir ck --offload-optimizer disk
    run -0 ranks 2 "${mlp[@]}" --steps 6 --checkpoint-dir ck --shard $mode
    run -0 ranks 2 "${mlp[@]}" --steps 9 --checkpoint-dir ck --shard $mode --offload-optimizer disk
    [[ $output == *"resumed from"* ]]
    [ "$whole" = "$(parameters)" ]
  done
}

# bats test_tags=full
@test "masters of bf16 weights, clipping, a loss scale and skipped steps go together with it" {
  half=(--model gpt --width 160 --layers 2 --data "text:$here/README.md" --batch 4 --optimizer adamw --precision bf16
    --param-type bf16 --clip 0.5 --loss-scale 1024 --on-nan skip --steps 5)
  for mode in none parameters; do
    run -0 ranks 2 "${half[@]}" --checkpoint-dir "$mode" --shard $mode
    run -0 ranks 2 "${half[@]}" --checkpoint-dir "$mode-offloaded" --shard $mode --offload-optimizer disk
    same_arrays "$mode" "$mode-offloaded"
  done
}

@test "the report has what is in the files, and a dry run predicts it" {
  run -0 ranks 2 "${mlp[@]}" --steps 2 --shard optimizer --offload-optimizer disk --report-dir report
  run -0 ranks 2 "${mlp[@]}" --steps 2 --shard optimizer --report-dir plain
  /usr/bin/python3 -c "
import json
plain, offloaded = (json.load(open(d + '/run.json'))['sharding'] for d in ('plain', 'report'))
weights = 64 * 512 + 2 * 512 * 512  # the others are small
half = weights * 8 // 2
assert plain['predicted_bytes_offloaded'] == 0 and offloaded['predicted_bytes_offloaded'] == half, (plain, offloaded)
less = plain['predicted_bytes_between_steps'] - offloaded['predicted_bytes_between_steps']
assert less == 0, less  # one window has all of it"
  run -0 ranks 2 "${mlp[@]}" --dry-run --offload-optimizer disk
  [[ $output == *"offloaded: 4.2 MiB per rank of the optimizer's state are in a file"* ]]
}

# Of the 690 MiB that one rank needs for this model, 268 are the optimizer's state.
# bats test_tags=full
@test "in memory that is too small for the optimizer's state, a model trains with the state in a file" {
  export MALLOC_MMAP_THRESHOLD_=1000000 MALLOC_TRIM_THRESHOLD_=1000000
  large=(--model mlp --width 2048 --layers 8 --optimizer adamw --batch 16 --data synthetic --steps 4)
  run -0 in_limited_memory 500 timeout 170 "$train" "${large[@]}" --offload-optimizer disk
  [[ $output == *"done: 4 steps"* ]]
  run in_limited_memory 500 timeout 170 "$train" "${large[@]}"
  [ "$status" -ne 0 ]
  [[ $output != *"done: 4 steps"* ]]
}

@test "a disk without room is an error on all ranks, which names the directory" {
  truncate -s 20M image
  mkfs.ext4 -q image || skip "no mkfs.ext4"
  mount -o loop image disk || skip "mounting an image needs root and a loop device"
  run -1 ranks 2 --model mlp --width 2048 --layers 3 --data synthetic --batch 4 --optimizer adamw --steps 3 \
    --offload-optimizer disk
  [[ $(spoken) == *"disk has no room for "*" more MiB of the optimizer's state, after "*"(No space left on device); free some, or offload to another directory"* ]]
}

@test "a limit of the size of files is an error on all ranks, which names it" {
  export train
  # shellcheck disable=SC2016  # expanded in each rank's shell
  run -1 timeout 100 mpirun -n 2 bash -c 'ulimit -f 20480; exec "$train" "$@"' rank --model mlp --width 2048 \
    --layers 3 --data synthetic --batch 4 --optimizer adamw --steps 3 --offload-optimizer disk
  [[ $(spoken) == *"the optimizer's state needs a file of "*" MiB or more in disk, but the limit of a file's size is 20 MiB (ulimit -f); raise it"* ]]
}

@test "a rank that cannot have a file is an error on all ranks" {
  unshare --mount true || skip "no right to make namespaces (needs root)"
  export train
  mkdir empty
  # shellcheck disable=SC2016  # expanded in each rank's shell
  run -2 timeout 100 mpirun -n 2 bash -c '
    [ "$OMPI_COMM_WORLD_RANK" -ne 1 ] || place=disk/missing
    exec "$train" --offload-optimizer "${place:-disk}" "$@"' rank "${mlp[@]}" --steps 2
  [ "$(spoken | wc -l)" -eq 1 ]
  [[ $(spoken) == *"rank 1 on "*": no file for the optimizer's state can be made in disk/missing (No such file or directory); give a directory on a local disk"* ]]
}

@test "what does not go together with a state in files is refused with one sentence" {
  refused 2 "no file for the optimizer's state can be made in nowhere (No such file or directory)" "${mlp[@]}" --steps 1 \
    --offload-optimizer nowhere
  refused 2 "--staleness cannot be combined with --offload-optimizer" --steps 1 --staleness 1 --offload-optimizer disk
}
