#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --checkpoint-memory: copies of the state in the memory of nodes, and what is left of them after
# faults. A directory takes the place of /dev/shm, except where the test says otherwise.

# shellcheck disable=SC2034  # memory.bash uses these
bats_require_minimum_version 1.5.0

load training
load memory

setup() { memory_setup; }

teardown() { memory_teardown; }

# Sets name, which ddp-run has given to this run.
has_name() {
  name=$(tr '\0' '\n' < "/proc/$(processes "^$train" | tail -n 1)/environ" | sed -n 's/^DDP_RUN_ID=//p')
  [ -n "$name" ]
} 2> /dev/null

@test "a killed rank costs a few steps, with the bits of an undisturbed run, and /dev/shm ends empty" {
  whole=$(undisturbed --steps 2000)
  unset DDP_RUN_MEMORY
  run_it -- "$train" "${mlp[@]}" --steps 2000 --checkpoint-memory 20 --report-dir report > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" has_name
  place=/dev/shm/slurm-ddp-memory-$(id -u)/$name
  wait_while_running "$job" has_copies 15
  kill_a_rank
  wait "$job"
  cat log
  ends_with "$whole"
  grep -E 'generation 2 .*, newest known state: step [0-9]+ in memory' log
  from=$(sed -n 's/^resumed from a copy in the memory of this node (step \([0-9]*\), made by 2 ranks)$/\1/p' log)
  [ "$from" -ge 300 ] && [ $((from % 20)) -eq 0 ]
  grep -q "checkpoint: two copies of .* MiB in the memory of each node, in /dev/shm/slurm-ddp-memory-$(id -u)/$name" log
  python3 -c "
import json
copies = json.load(open('report/run.json'))['memory_copies']
assert copies['copies'] > 10 and 0 < copies['stall_seconds'] < 10 and copies['bytes_per_node'] > 100000 and not copies['divided']"
  run ! ls -d "/dev/shm/slurm-ddp-memory-$(id -u)/$name"
  run -0 "$bin/ddp-ckpt" verify ck
}

# bats test_tags=full
@test "shards of the optimizer are parts of a copy" {
  whole=$(undisturbed --steps 2000 --shard optimizer)
  run_it -- "$train" "${mlp[@]}" --steps 2000 --checkpoint-memory 20 --shard optimizer > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" has_copies 15
  grep -q '"divided":true' events.jsonl
  kill_a_rank
  wait "$job"
  cat log
  ends_with "$whole"
  grep -q "resumed from a copy in the memory of this node" log
  nothing_left
}

# bats test_tags=full
@test "two copies are kept, and a time or Young's interval says when they are made" {
  killed_at 100 2 "${mlp[@]}" --steps 100000 --checkpoint-memory 20
  [ "$(copies | wc -l)" -le 3 ]
  run -0 started 2 "${mlp[@]}" --steps 4000 --checkpoint-memory 1s
  grep -E 'resumed from a copy in the memory of this node \(step [0-9]*' <<< "$output"
  [[ $output == *"checkpoint: two copies of "* ]]
  nothing_left
  run -0 started 2 "${mlp[@]}" --steps 4000 --checkpoint-memory auto --checkpoint-dir other
  [[ $output == *"in node memory every Young interval"* ]]
  nothing_left
}

# bats test_tags=full
@test "a damaged copy is not used, but the one before it, or the newest checkpoint" {
  whole=$(undisturbed --steps 4000)
  run -0 started 2 "${mlp[@]}" --steps 40
  # While a copy is written, the one before is the only one.
  for step in 100 400 700 1000 1300; do
    killed_at "$step" 2 "${mlp[@]}" --steps 4000 --checkpoint-memory 100
    [ "$(copies | wc -l)" -lt 2 ] || break
  done
  newest=$(copies | tail -n 1)
  before=$(copies | tail -n 2 | head -n 1)
  printf '\1' | dd of="$(find memory -path "*step-*$newest.*" -name model.h5)" bs=1 seek=200000 conv=notrunc status=none
  cp -r memory damaged && cp -r ck ck-before
  run -0 started 2 "${mlp[@]}" --steps 4000 --checkpoint-memory 100
  echo "$output"
  [[ $output == *"warning: the copy of step $newest in the memory of $(hostname) is not used: "*" are damaged: crc32c is "* ]]
  [[ $output == *"resumed from a copy in the memory of this node (step $before, "* ]]
  [ "$(parameters)" = "$whole" ]
  # Both.
  rm -r memory ck && mv damaged memory && mv ck-before ck
  find memory -name model.h5 -exec sh -c 'printf "\1" | dd of="$1" bs=1 seek=200000 conv=notrunc status=none' damage {} \;
  run -0 started 2 "${mlp[@]}" --steps 4000 --checkpoint-memory 100
  [ "$(grep -c 'warning: the copy of step .* is not used' <<< "$output")" -eq 2 ]
  [[ $output == *"resumed from "*"/ck/step-00000040"* ]]
  [ "$(parameters)" = "$whole" ]
}

@test "what another user could have planted in its place is refused, and training continues" {
  mkdir elsewhere
  ln -s "$work/elsewhere" "memory/slurm-ddp-memory-$(id -u)"
  run -0 started 2 "${mlp[@]}" --steps 100 --checkpoint-memory 20
  [[ $output == *"warning: no copies in the memory of nodes any more, and the state is saved to ck alone: rank 0 on $(hostname): $work/memory/slurm-ddp-memory-$(id -u) is not a directory that only this user can access; remove it"* ]]
  [ -z "$(ls -A elsewhere)" ]
  [ -L "memory/slurm-ddp-memory-$(id -u)" ]
}

@test "memory that is too small is told once, and training continues" {
  mount -t tmpfs -o size=1m none memory || skip "mounting a tmpfs needs root"
  run -0 started 2 "${mlp[@]}" --steps 200 --checkpoint-memory 20
  [ "$(grep -c 'warning: no copies in the memory of nodes any more' <<< "$output")" -eq 1 ]
  [[ $output == *" has room for "*" MiB, and copies need "* ]]
  nothing_left
}

# bats test_tags=full
@test "memory that fills up later is told once, too" {
  mount -t tmpfs -o size=8m none memory || skip "mounting a tmpfs needs root"
  DDP_RUN_ID=00000000000000000000000000000001 ranks 2 "${mlp[@]}" --steps 2000 --checkpoint-memory 20 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" copied 20
  # A copy takes the room of an older one, unless another file takes it first.
  while kill -0 "$job" 2> /dev/null; do
    dd if=/dev/zero bs=4k status=none >> memory/filler 2> /dev/null || true
  done
  wait "$job"
  cat log
  [ "$(grep -c 'warning: no copies in the memory of nodes any more, .*No space left on device' log)" -eq 1 ]
  grep -q 'done: 2000 steps' log
  [ "$(ls -A memory)" = filler ]
}

@test "a job whose memory limit is too small for copies does without them" {
  large=(--model mlp --width 2500 --layers 4 --batch 8 --data digits --momentum 0 --steps 4 --checkpoint-dir ck --checkpoint-every 100)
  DDP_RUN_ID=00000000000000000000000000000001 run -0 in_limited_memory 430 timeout 180 mpirun -n 1 "$train" "${large[@]}" --checkpoint-memory 1
  echo "$output"
  [[ $output == *"warning: no copies in the memory of nodes any more"*"of memory left there, and copies need"* ]]
  nothing_left
}

# bats test_tags=full
@test "if ddp-run is killed, or gives up, nothing is left" {
  run_it -- "$train" "${mlp[@]}" --steps 100000 --checkpoint-memory 20 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" has_copies 3
  # Ranks that cannot save and remove their copies: their agents end them and do it.
  for pid in $(processes "^$train"); do kill -STOP "$pid"; done
  kill -KILL "$(processes "^$run_program --events")"
  wait "$job" || true
  job=
  for _ in {1..600}; do
    if nothing_left; then break; fi
    sleep 0.1
  done
  nothing_left
  rm events.jsonl
  # A program that fails again and again.
  run_it --max-restarts 0 -- "$train" "${mlp[@]}" --steps 100000 --checkpoint-memory 20 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" has_copies 3
  kill_a_rank
  ended_with 1
  nothing_left
}

# bats test_tags=full
@test "two jobs of one user do not mix" {
  whole=$(undisturbed --steps 3000)
  id=00000000000000000000000000000002
  run_it -- "$train" "${mlp[@]}" --steps 3000 --checkpoint-memory 20 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" has_copies 3
  run -0 started 1 "${mlp[@]}" --steps 100 --checkpoint-memory 10 --checkpoint-dir other
  [[ $output != *"resumed from"* ]]
  [ "$(find "memory/slurm-ddp-memory-$(id -u)" -mindepth 1 -maxdepth 1 | wc -l)" -eq 1 ]
  kill_a_rank
  wait "$job"
  cat log
  ends_with "$whole"
  grep -q "resumed from a copy in the memory of this node" log
  nothing_left
}

# Both copies continue a later checkpoint than the first one.
copies_are_later() {
  local saved
  mapfile -t saved < <(compgen -G 'ck/step-*' | sort)
  [ "${#saved[@]}" -ge 2 ] && [ "$(copies | head -n 1)" -gt $((10#${saved[1]##*-})) ] && copied 100
} 2> /dev/null

# bats test_tags=full
@test "copies of a checkpoint directory that is gone, or was rolled back, are not used" {
  until=copies_are_later
  killed_at 100 2 "${mlp[@]}" --steps 2000 --checkpoint-memory 20 --checkpoint-every 30
  mv ck ck-gone
  cp -r memory copies
  run -0 started 2 "${mlp[@]}" --steps 200 --checkpoint-memory 20
  [[ $output != *"resumed from"* ]]
  rm -r memory ck && mv copies memory && mv ck-gone ck
  first=$(compgen -G 'ck/step-*' | sort | head -n 1)
  run -0 "$bin/ddp-ckpt" rollback "$first"
  run -0 started 2 "${mlp[@]}" --steps 200 --checkpoint-memory 20
  [[ $output == *"resumed from "*"/$first"* ]]
}

# bats test_tags=full
@test "a copy later than the checkpoint that ddp-ckpt rollback names is not used, even if that is the newest" {
  run -0 started 2 "${mlp[@]}" --steps 40
  killed_at 60 2 "${mlp[@]}" --steps 20000 --checkpoint-memory 20
  run -0 "$bin/ddp-ckpt" rollback ck/step-00000040
  run -0 started 2 "${mlp[@]}" --steps 60 --checkpoint-memory 20
  [[ $output == *"resumed from "*"/ck/step-00000040"* ]]
}

# bats test_tags=full
@test "what a dead run left an hour ago is removed by the next one" {
  killed_at 40 2 "${mlp[@]}" --steps 2000 --checkpoint-memory 20
  id=00000000000000000000000000000002
  run -0 started 2 "${mlp[@]}" --steps 40 --checkpoint-memory 20 --checkpoint-dir other
  [ -n "$(copies)" ]
  touch -d '2 hours ago' "memory/slurm-ddp-memory-$(id -u)"/*/in-use
  run -0 started 2 "${mlp[@]}" --steps 60 --checkpoint-memory 20 --checkpoint-dir other
  nothing_left
}

# bats test_tags=full
@test "another number of ranks resumes from the copy, and --checkpoint-local goes beside it" {
  killed_at 60 3 "${mlp[@]}" --steps 2000 --checkpoint-memory 20 --shard optimizer
  run -0 started 2 "${mlp[@]}" --steps 2000 --checkpoint-memory 20 --shard optimizer --checkpoint-local "$work/local" --checkpoint-every 500
  [[ $output == *"resumed from a copy in the memory of this node (step "*", made by 3 ranks)"* ]]
  run ! compgen -G 'local/slurm-ddp-*/*/.tmp-*'
  nothing_left
}

@test "without ddp-run there are no copies" {
  run -0 ranks 2 "${mlp[@]}" --steps 20 --checkpoint-memory 20
  [[ $output == *"checkpoint: no copies in the memory of nodes, because only a program that ddp-run has started"* ]]
  nothing_left
}

# bats test_tags=full
@test "any node has a state that all ranks have: a replaced one gets it from another" {
  nodes
  # The statistics of batch normalization differ between ranks.
  model=(--model resnet18 --data synthetic --width 4 --batch 4 --steps 40 --checkpoint-dir ck --checkpoint-every 10000 --checkpoint-memory 2)
  run -0 timeout 180 mpirun -n 2 "${program[@]}" "${model[@]}" --checkpoint-dir undisturbed
  whole=$(parameters)
  killed_at 6 2 "${model[@]}"
  cat log
  rm -r nodes/0/*
  newest=$(copies nodes/1 | tail -n 1)
  again "${model[@]}"
  [[ $output == *"checkpoint: fetching the copy of step $newest from the memory of node1"* ]]
  [[ $output == *"resumed from a copy in the memory of this node (step $newest, made by 2 ranks)"* ]]
  [ "$(parameters)" = "$whole" ]
  run -0 "$bin/ddp-ckpt" diff undisturbed/step-00000040 ck/step-00000040
  [ -z "$(find nodes -name 'slurm-*')" ]
}

# bats test_tags=full
@test "parts on two nodes go to the checkpoint directory first, and a lost part loses the copy" {
  nodes
  whole=$(undisturbed --steps 2000 --shard optimizer)
  again "${mlp[@]}" --steps 40 --shard optimizer
  killed_at 60 2 "${mlp[@]}" --steps 2000 --checkpoint-memory 20 --shard optimizer
  cp -r nodes before && cp -r ck ck-before
  again "${mlp[@]}" --steps 2000 --checkpoint-memory 20 --shard optimizer
  [[ $output == *"checkpoint: copying step "*" from the nodes' memories, where an earlier process of this run left it"* ]]
  [ "$(parameters)" = "$whole" ]
  [ -z "$(find nodes -name 'slurm-*')" ]
  rm -r nodes ck && mv before nodes && mv ck-before ck
  rm -r nodes/1/*
  again "${mlp[@]}" --steps 2000 --checkpoint-memory 20 --shard optimizer
  [[ $output == *"checkpoint: the nodes' memories hold 1 of the 2 files of a later save, step "* ]]
  [[ $output == *"resumed from "*"/ck/step-00000040"* ]]
  [ "$(parameters)" = "$whole" ]
}
