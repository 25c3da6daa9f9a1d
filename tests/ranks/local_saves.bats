#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --checkpoint-local on two nodes: each rank has a host name and a disk of its own (a tmpfs in a
# mount namespace).

bats_require_minimum_version 1.5.0

load training

setup() {
  training_setup
  unshare --mount --uts true || skip "no right to make namespaces (needs root)"
  export train
}

teardown() { unmount_disk; }

# The disks outlast the processes: nodes/K is mounted at `local` for rank K only.
nodes() { # ARGS...
  mkdir -p local nodes/0 nodes/1
  # shellcheck disable=SC2016  # expanded in each rank's shell
  timeout 180 mpirun -n 2 unshare --mount --uts bash -c '
    hostname "node$OMPI_COMM_WORLD_RANK"
    mount --bind "nodes/$OMPI_COMM_WORLD_RANK" local
    exec "$train" --checkpoint-local "$PWD/local" --checkpoint-share-mb 0.05 "$@"' rank "$@"
}

model=(--model mnist-cnn --optimizer adam --lr 0.001 --batch 32 --epochs 2)

@test "jobs that are killed at any moment: the result is that of an uninterrupted run, and the nodes' disks end empty" {
  run -0 ranks 2 "${model[@]}"
  whole=$(parameters)
  local number job pid
  for number in 1 2 3 4; do
    nodes "${model[@]}" --checkpoint-dir ck --checkpoint-every 2 --keep-last 2 > "log$number" 2>&1 3>&- &
    job=$!
    until grep -q '^resumed from' "log$number" || compgen -G 'nodes/1/slurm-ddp-*/*/.tmp-*/*.json' > /dev/null; do
      kill -0 "$job" || { cat "log$number" && false; }
      sleep 0.02
    done
    sleep "0.$((number * 37 % 10))"
    pid=$(rank_pids "$job" | sed -n "$((number % 2 + 1))p")
    [ -z "$pid" ] || kill -KILL "$pid" || true
    if wait "$job"; then break; fi
  done
  run -0 nodes "${model[@]}" --checkpoint-dir ck
  echo "$output"
  [ "$whole" = "$(parameters)" ]
  run -0 "$bin/ddp-ckpt" verify ck
  run ! compgen -G 'nodes/*/slurm-ddp-*/*/.tmp-*'
}

# Saves have the name of rank 0's process, so the other nodes must not look for their own.
@test "each node's disk holds a few saves at a time" {
  nodes "${model[@]}" --checkpoint-dir ck --checkpoint-every 1 --epochs 3 --keep-last 2 > log 2>&1 3>&- &
  job=$!
  local most=(0 0) node saves
  while kill -0 "$job" 2> /dev/null; do
    for node in 0 1; do
      saves=$(compgen -G "nodes/$node/slurm-ddp-*/*/.tmp-*" | wc -l) || true
      [ "$saves" -le "${most[node]}" ] || most[node]=$saves
    done
    sleep 0.05
  done
  wait "$job"
  echo "at most: ${most[*]}"
  [ "${most[0]}" -ge 1 ] && [ "${most[1]}" -ge 1 ]
  [ "${most[0]}" -le 3 ] && [ "${most[1]}" -le 3 ]
}

# bats test_tags=full
@test "a full checkpoint directory: the last step is on the nodes' disks, and the next job resumes from it" {
  mkdir disk
  mount -t tmpfs -o size=64m none disk || skip "mounting a tmpfs needs root"
  large=(--model mlp --width 1850 --layers 4 --batch 16 --momentum 0 --checkpoint-dir disk/ck --checkpoint-every 1)
  run --separate-stderr nodes "${large[@]}" --steps 3
  echo "$output" && echo "$stderr"
  [ "$status" -eq 1 ]
  [[ $stderr == *"the checkpoint of step 3, the last one, could not be saved: "*"No space left on device"* ]]
  # Without room, the next job says so and loses nothing.
  run --separate-stderr nodes "${large[@]}" --steps 4
  echo "$output" && echo "$stderr"
  [ "$status" -eq 1 ]
  [[ $stderr == *"a checkpoint on the nodes' own disks could not be copied to disk/ck: "*"No space left on device"* ]]
  mount -o remount,size=256m disk
  run -0 nodes "${large[@]}" --steps 4
  echo "$output"
  [[ $output == *"checkpoint: copying step 3 ("*"resumed from "*"/disk/ck/step-00000003"* ]]
  run ! compgen -G 'nodes/*/slurm-ddp-*/*/.tmp-*'
}

# bats test_tags=full
@test "shards of the optimizer: the last step is on the nodes' disks in parts, and any job with them resumes from it" {
  mkdir disk
  mount -t tmpfs -o size=22m none disk || skip "mounting a tmpfs needs root"
  large=(--model mlp --width 600 --layers 4 --batch 16 --optimizer adam --checkpoint-dir disk/ck --checkpoint-every 1
    --shard optimizer)
  run -0 ranks 2 "${large[@]}" --steps 4 --checkpoint-dir whole
  whole=$(parameters)
  run nodes "${large[@]}" --steps 3
  echo "$output"
  [ "$status" -eq 1 ]
  [[ $output == *"the checkpoint of step 3, the last one, could not be saved: "*"No space left on device"* ]]
  sizes=$(stat -c %s nodes/*/slurm-ddp-*/*/.tmp-*/rank-0000?-of-00002.h5 | sort -n)
  [ "$(tail -n 1 <<< "$sizes")" -lt $(($(head -n 1 <<< "$sizes") * 5 / 4)) ]
  mount -o remount,size=256m disk
  run -0 nodes "${large[@]}" --steps 4
  echo "$output"
  [[ $output == *"checkpoint: copying step 3 ("*"resumed from "*"/disk/ck/step-00000003"* ]]
  [ "$whole" = "$(parameters)" ]
  run ! compgen -G 'nodes/*/slurm-ddp-*/*/.tmp-*'
}

# bats test_tags=full
@test "a job on other nodes resumes from the checkpoint directory, and says what it cannot see" {
  mkdir disk
  mount -t tmpfs -o size=64m none disk || skip "mounting a tmpfs needs root"
  large=(--model mlp --width 1850 --layers 4 --batch 16 --momentum 0 --checkpoint-dir disk/ck --checkpoint-every 1)
  run nodes "${large[@]}" --steps 3
  [ "$status" -eq 1 ]
  mount -o remount,size=256m disk
  mv nodes/1 elsewhere
  run -0 nodes "${large[@]}" --steps 4
  echo "$output"
  [[ $output == *"hold 1 of the 2 files of a later save, step 3, which is not used"*"resumed from "*"/disk/ck/step-0000000"[12]* ]]
}

@test "a directory that cannot be used is refused at the start, with the rank and the host" {
  mkdir -p nodes/1
  mkdir -m 0777 "nodes/1/slurm-ddp-$(id -u)"
  chmod 0777 "nodes/1/slurm-ddp-$(id -u)"
  run -2 nodes --checkpoint-dir ck
  echo "$output"
  [[ $(spoken) == *"rank 1 on node1: "*"is not a directory that only this user can access"* ]]
  run -2 "$train" --checkpoint-local /tmp
  [[ $output == *"--checkpoint-local needs a --checkpoint-dir"* ]]
}
