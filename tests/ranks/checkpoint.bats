#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of ddp-train with several processes: signals at any time, a full disk, and ranks that
# die or stop while saving. The result of a resumed run must be bitwise identical to that of an
# uninterrupted run.

bats_require_minimum_version 1.5.0

load training

setup() { training_setup; }

teardown() { unmount_disk; }

# stopped_rank_is_named RANK JOB: waits until the other rank of the run, whose output goes to `log`,
# names RANK. Then kills the stopped rank, because mpirun would take a long time to do so, and waits
# for JOB, which must fail.
stopped_rank_is_named() {
  local pid
  until grep -qE "rank $1 .*does not answer: stopped|waited 2 s in .* for rank $1\$" log; do
    kill -0 "$2" || { cat log && return 1; }
    sleep 0.05
  done
  for pid in $(pgrep -x ddp-train); do
    if [ "$(readlink "/proc/$pid/cwd")" = "$PWD" ] && grep -q '^State:.[Tt]' "/proc/$pid/status"; then
      kill -KILL "$pid"
    fi
  done
  if wait "$2"; then return 1; fi
}

model=(--model mnist-cnn --epochs 3 --batch 32)
shared=(--model mnist-cnn --optimizer adam --lr 0.001 --checkpoint-share-mb 0.05)

two_ranks_have_saved() { # CHECKPOINTS
  [ "$(rank_pids "$job" | wc -l)" -eq 2 ] && [ "$(compgen -G 'ck/step-*' | wc -l)" -ge "$1" ]
}

# bats test_tags=full
@test "a signal to any rank: all stop after one step, the checkpoint is complete, and the final result is the same" {
  run -0 ranks 2 "${model[@]}"
  whole=$(parameters)
  local number=0 signal stopped=0
  local signals=(USR1 TERM USR2)
  [ -z "${SLURM_DDP_LONG_TESTS:-}" ] || signals+=(USR1 TERM USR2 USR1 TERM USR2 USR1 TERM USR2)
  for signal in "${signals[@]}"; do
    number=$((number + 1))
    rm -rf ck
    ranks 2 "${model[@]}" --checkpoint-dir ck --checkpoint-every 2 > "log$number" 2>&1 3>&- &
    job=$!
    wait_while_running "$job" two_ranks_have_saved 1
    sleep "0.0$((number * 17 % 10))"
    # The first signal goes to alternating ranks. A second signal, during the save, must change
    # nothing.
    rank_pids "$job" | sed -n "$((number % 2 + 1))p" | xargs kill "-$signal"
    rank_pids "$job" | xargs -r kill "-$signal" || true
    ended_with 75 "log$number"
    grep -F "because SIG$signal was received" "log$number"
    run -0 "$bin/ddp-ckpt" verify ck
    run -0 compgen -G 'ck/step-*'
    run ! compgen -G 'ck/.tmp-*'
    step=$(grep -o 'stopped at step [0-9]*' "log$number" | tail -n 1 | grep -o '[0-9]*$')
    [ -d "ck/step-$(printf %08d "$step")" ]
    run -0 ranks 2 "${model[@]}" --checkpoint-dir ck
    [ "$whole" = "$(parameters)" ]
    stopped=$((stopped + 1))
  done
  echo "fault matrix: signal to a rank in training: $stopped points" >&3
}

@test "a signal while ranks are still missing is answered after the first step" {
  export train
  # shellcheck disable=SC2016  # expanded in each rank's shell
  timeout 120 mpirun -n 2 bash -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || until [ -e go ]; do sleep 0.1; done
    exec "$train" "$@"' rank "${model[@]}" --checkpoint-dir ck --checkpoint-every 1000 > log 2>&1 3>&- &
  job=$!
  until pid=$(rank_pids "$job") && [ -n "$pid" ]; do sleep 0.1; done
  # Bit 14 stands for SIGTERM: once it is set, the signal does not kill the process.
  for _ in $(seq 600); do
    caught=0x$(sed -n 's/^SigCgt:\t//p' "/proc/$pid/status")
    [ $((caught >> 14 & 1)) -eq 0 ] || break
    sleep 0.1
  done
  kill -TERM "$pid"
  touch go
  ended_with 75
  grep -F "because SIGTERM was received; checkpoint: " log
  run -0 "$bin/ddp-ckpt" verify ck
}

@test "a signal after the last line changes nothing: the run is complete" {
  # The last lines are written at the exit of the process. Counts the writes before that one.
  traced=(strace -f -o trace -e trace=write -P "$PWD/said")
  one=("$train" "${model[@]}" --epochs 1 --checkpoint-dir ck)
  "${traced[@]}" "${one[@]}" > said 3>&-
  rm -r ck
  "${traced[@]}" -e inject=write:signal=SIGTERM:when="$(grep -c 'write(' trace)" "${one[@]}" > said 3>&-
  grep 'SIGTERM' trace
  grep '^done: ' said
}

@test "ranks share the writing, and any number of ranks reads it" {
  big=("${shared[@]}" --batch 16)
  run -0 ranks 2 "${big[@]}" --steps 4
  whole=$(parameters)
  run -0 ranks 2 "${big[@]}" --steps 2 --checkpoint-dir ck
  run -0 ls ck/step-00000002
  [[ $output == *rank-00000-of-00002.h5*rank-00001-of-00002.h5* ]]
  run -0 "$bin/ddp-ckpt" verify ck
  cp -r ck three
  run -0 ranks 2 "${big[@]}" --steps 4 --checkpoint-dir ck
  [ "$whole" = "$(parameters)" ]
  run -0 ranks 3 "${big[@]}" --steps 3 --checkpoint-dir three
  [[ $output == *"(step 2, made by 2 ranks)"* ]]
  run -0 "$train" "${big[@]}" --steps 4 --checkpoint-dir three
  [[ $output == *"(step 3, made by 3 ranks)"* ]]
}

@test "a rank killed in any stage of a save: the previous checkpoint is complete and loads" {
  strace -o /dev/null true || skip "strace may not trace here"
  run -0 ranks 2 "${shared[@]}" --steps 1 --checkpoint-dir base
  local points=0 rank call stage
  # Only rank 0 publishes.
  local stages=(0/fsync:2 0/renameat2:1 1/pwrite64:6)
  [ -z "${SLURM_DDP_LONG_TESTS:-}" ] || stages+=(0/fallocate:1 0/pwrite64:6 0/fsync:{1,3,4} 1/fallocate:1 1/fsync:{1,2})
  for stage in "${stages[@]}"; do
    rank=${stage%/*}
    call=${stage#*/}
    rm -rf ck && cp -r base ck
    cat > struck <<SH
#!/bin/bash
[ "\$OMPI_COMM_WORLD_RANK" = $rank ] || exec "\$@"
exec strace -f -o trace -e trace=${call%:*} -e inject=${call%:*}:signal=SIGKILL:when=${call#*:} "\$@"
SH
    chmod +x struck
    run timeout 60 mpirun -n 2 ./struck "$train" "${shared[@]}" --steps 2 \
      --checkpoint-dir ck --timeout 10
    [ "$status" -ne 0 ] && [ "$status" -ne 124 ]
    grep -q 'killed by SIGKILL' trace
    run -0 "$bin/ddp-ckpt" verify ck/step-00000001
    [ ! -e ck/step-00000002 ] || "$bin/ddp-ckpt" verify ck/step-00000002
    points=$((points + 1))
  done
  run -0 ranks 2 "${shared[@]}" --steps 2 --checkpoint-dir ck
  run ! compgen -G 'ck/.tmp-*'
  echo "fault matrix: rank killed in a stage of a shared save: $points points" >&3
}

# bats test_tags=full
@test "a rank that is stopped while others save is named, and the previous checkpoint loads" {
  ranks 2 --model mnist-cnn --epochs 1000 --checkpoint-dir ck --checkpoint-every 1 --timeout 2 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" two_ranks_have_saved 2
  kill -STOP "$(rank_pids "$job" | tail -n 1)"
  stopped_rank_is_named 1 "$job"
  run -0 ranks 2 --model mnist-cnn --steps 1 --checkpoint-dir ck
  [[ $output == *"resumed from"* ]]
}

# bats test_tags=full
@test "a rank that stops inside a shared save is identified when the timeout expires, and leaves no incomplete checkpoint" {
  strace -o /dev/null true || skip "strace may not trace here"
  run -0 ranks 2 "${shared[@]}" --steps 1 --checkpoint-dir base
  local points=0 rank call stage
  local stages=(1/pwrite64:6)
  [ -z "${SLURM_DDP_LONG_TESTS:-}" ] || stages+=(1/fallocate:1 1/fsync:{1,2} 0/pwrite64:6 0/fsync:{1,2,3,4} 0/renameat2:1)
  for stage in "${stages[@]}"; do
    rank=${stage%/*}
    call=${stage#*/}
    rm -rf ck trace && cp -r base ck
    cat > struck <<SH
#!/bin/bash
[ "\$OMPI_COMM_WORLD_RANK" = $rank ] || exec "\$@"
exec strace -f -o trace -e trace=${call%:*} -e inject=${call%:*}:signal=SIGSTOP:when=${call#*:} "\$@"
SH
    chmod +x struck
    timeout 60 mpirun -n 2 ./struck "$train" "${shared[@]}" --steps 3 --checkpoint-dir ck \
      --checkpoint-every 1 --timeout 2 > log 2>&1 3>&- &
    stopped_rank_is_named "$rank" "$!"
    grep -q 'stopped by SIGSTOP' trace
    for step in ck/step-*; do run -0 "$bin/ddp-ckpt" verify "$step"; done
    run -0 ranks 2 "${shared[@]}" --steps 3 --checkpoint-dir ck
    [[ $output == *"resumed from "* ]]
    run -0 "$bin/ddp-ckpt" verify ck
    run ! compgen -G 'ck/.tmp-*'
    points=$((points + 1))
  done
  echo "fault matrix: rank stopped inside a shared save: $points points" >&3
}

# bats test_tags=full
@test "ranks that disagree on the contents of a checkpoint: the rank and the array are named, and nothing is left behind" {
  local points=0 difference expected
  local differences=(name shape)
  [ -z "${SLURM_DDP_LONG_TESTS:-}" ] || differences+=(less)
  for difference in "${differences[@]}"; do
    case $difference in
      name) expected="rank 1 has 'user/extra' float32 [1] but rank 0 does not" ;;
      less) expected="rank 1 lacks 'user/counts' int64 [2], which rank 0 has" ;;
      shape) expected="rank 1 has 'user/average' float32 [4] but rank 0 does not" ;;
    esac
    rm -rf ck
    run timeout 60 mpirun -n 2 "$bin/../tests/disagreeing_ranks" "$difference" ck
    [ "$status" -ne 0 ] && [ "$status" -ne 124 ]
    [[ $output == *"ranks disagree on the contents of a checkpoint: $expected;"* ]]
    run ! compgen -G 'ck/*step-*'
    points=$((points + 1))
  done
  run -0 timeout 60 mpirun -n 2 "$bin/../tests/disagreeing_ranks" nothing ck
  run -0 "$bin/ddp-ckpt" verify ck
  echo "fault matrix: ranks that disagree on what they save: $points points" >&3
}

@test "on a disk that is too small for a second checkpoint, training continues with warnings and exits with an error" {
  mkdir disk
  mount -t tmpfs -o size=64m none disk || skip "mounting a tmpfs needs root"
  large=(--model mlp --width 1850 --layers 4 --batch 16 --momentum 0 --checkpoint-dir disk/ck --checkpoint-every 1)
  run --separate-stderr ranks 1 "${large[@]}" --steps 4 --keep-last 3
  echo "$output" && echo "$stderr"
  [ "$status" -eq 1 ]
  [ "$(grep -c '^warning: the checkpoint of step [23] was not saved, training continues: .*No space left on device' <<< "$stderr")" -eq 2 ]
  [[ $stderr == *"the checkpoint of step 4, the last one, could not be saved: "*"No space left on device"*"the newest complete checkpoint: "*"/disk/ck/step-00000001"* ]]
  run -0 "$bin/ddp-ckpt" verify disk/ck
  [[ $output == *step-00000001* ]]
  size=$(stat -c %s disk/ck/step-00000001/model.h5)
  [ "$size" -gt $((38 << 20)) ] && [ "$size" -lt $((44 << 20)) ]
  # With enough space, running the same command again must be sufficient.
  mount -o remount,size=128m disk
  run -0 ranks 1 "${large[@]}" --steps 2
  [[ $output == *"resumed from "*"/disk/ck/step-00000001"* ]]
}

# bats test_tags=full
@test "after a signal on a full disk, the run does not say 'run the same command to continue'" {
  mkdir disk
  mount -t tmpfs -o size=64m none disk || skip "mounting a tmpfs needs root"
  fallocate -l 60m disk/full
  ranks 1 --model mlp --width 1850 --layers 4 --batch 16 --momentum 0 --checkpoint-dir disk/ck \
    --epochs 1000 --log-every 1 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q 'step 2' log
  rank_pids "$job" | xargs kill -TERM
  ended_with 1
  grep -E 'the checkpoint of step [0-9]+, the last one, could not be saved: .*No space left on device.*; the newest complete checkpoint: none' log
  run ! grep -F 'run the same command to continue' log
}

digits=(--model mlp --data digits --batch 32 --epochs 3)

@test "a rollback keeps its checkpoints, and the same command resumes instead of rolling back again" {
  run -0 ranks 1 "${digits[@]}" --steps 30 --checkpoint-dir ck --checkpoint-every 5
  back=(--checkpoint-dir ck --checkpoint-every 2 --resume ck/step-00000020 --lr 0.01)
  run -0 ranks 1 "${digits[@]}" "${back[@]}" --steps 24
  [[ $output == *"resumed from "*"step-00000020 (step 20,"* ]]
  [[ $output == *"checkpoint: "*"/ck/step-00000024"* ]]
  run -0 "$bin/ddp-ckpt" verify ck
  [ "$(cat ck/latest)" = step-00000024 ]
  [ -d ck/step-00000024 ] && [ ! -e ck/step-00000030 ] && [ ! -e ck/step-00000025 ]
  compgen -G 'ck/.superseded-step-00000030.*'
  compgen -G 'ck/.superseded-step-00000025.*'
  run -0 ranks 1 "${digits[@]}" "${back[@]}" --steps 34
  [[ $output == *"resumed from "*"step-00000024 (step 24,"* ]]
  # By this time, keep-last has deleted the starting point.
  [ ! -e ck/step-00000020 ]
  run -0 ranks 1 "${digits[@]}" "${back[@]}" --steps 36
  [[ $output == *"resumed from "*"step-00000034 (step 34,"* ]]
}

@test "after a rollback or a return to an earlier branch, the directory and best/ hold only the current branch" {
  best=(--checkpoint-dir ck --checkpoint-every 30 --keep-last 9 --keep-best)
  run -0 ranks 1 "${digits[@]}" "${best[@]}" --epochs 4
  cp -r ck/step-00000200 copy
  # The branch learns nothing: its best evaluation is worse than that of the first branch.
  run -0 ranks 1 "${digits[@]}" "${best[@]}" --steps 180 --lr 1e-9 --resume ck/step-00000060
  [[ $output == *"best checkpoint: "*"/ck/best/"* ]]
  [ "$(compgen -G 'ck/best/step-*' | wc -l)" -eq 1 ]
  compgen -G 'ck/best/.superseded-step-00000200.*'
  run -0 ranks 1 "${digits[@]}" "${best[@]}" --steps 220 --resume copy
  [[ $output == *"resumed from "*"/copy (step 200,"* ]]
  [ -d ck/step-00000060 ] && [ ! -e ck/step-00000090 ] && [ ! -e ck/step-00000150 ]
  [ "$(compgen -G 'ck/.superseded-step-00000150.*' | wc -l)" -eq 2 ]
}

@test "a run that starts from a checkpoint of different data has its own best evaluation" {
  python3 -c 'import random; open("words", "w").write(" ".join(str(random.random()) for _ in range(999)))'
  gpt=(--model gpt --width 16 --layers 1 --context 16 --batch 4 --keep-best)
  run -0 ranks 1 "${gpt[@]}" --data text:words --epochs 6 --checkpoint-dir first
  # No evaluation on noise can be as good as on decimal numbers, which a model can learn.
  head -c 20000 /dev/urandom > noise
  run -0 ranks 1 "${gpt[@]}" --data text:noise --epochs 8 --patience 1 --checkpoint-dir second \
    --resume "$(compgen -G 'first/step-*' | sort | tail -n 1)" --heads 2
  [[ $output == *"checkpoint: heads was 4 in the saved run and is 2 now"* ]]
  [[ $output == *"best checkpoint: "*"/second/best/"* ]]
}

@test "a data set whose name a checkpoint cannot hold is refused at the start" {
  local odd=$'odd\xff'
  seq 9999 > "$odd"
  run -2 ranks 1 --model gpt --width 16 --layers 1 --context 16 --batch 4 --data "text:$odd" --checkpoint-dir ck
  [[ $output == *"'data' of this run is not UTF-8"* ]]
}

# bats test_tags=full
@test "--resume PATH survives an interruption: the same command resumes from its own steps" {
  run -0 ranks 1 "${digits[@]}" --steps 10 --checkpoint-dir start
  fine=("${digits[@]}" --epochs 12 --checkpoint-dir ck --checkpoint-every 5 --resume start/step-00000010 --lr 0.01)
  run -0 ranks 1 "${fine[@]}"
  whole=$(parameters)
  rm -rf ck
  ranks 1 "${fine[@]}" > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" compgen -G 'ck/step-*'
  rank_pids "$job" | xargs kill -TERM
  ended_with 75
  step=$(grep -o 'stopped at step [0-9]*' log | grep -o '[0-9]*$')
  run -0 ranks 1 "${fine[@]}"
  [[ $output == *"(step $step, made by"* ]]
  [ "$whole" = "$(parameters)" ]
  run -0 ranks 1 "${digits[@]}" --steps 5 --checkpoint-dir other
  run -2 ranks 1 "${fine[@]}" --checkpoint-dir other
  [[ $output == *"holds checkpoints of another run"* ]]
}

# Steps that have been read after they were written are noted in ck/.verified.
# bats test_tags=full
@test "after a signal, the last checkpoint is not read again before the process exits" {
  rare=("${digits[@]}" --checkpoint-dir ck --checkpoint-every 1000000)
  run -0 ranks 1 "${rare[@]}" --steps 3
  grep '^3 ' ck/.verified
  ranks 1 "${rare[@]}" --epochs 100000 --log-every 1 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q 'step 5' log
  rank_pids "$job" | xargs kill -TERM
  ended_with 75
  step=$(grep -o 'stopped at step [0-9]*' log | grep -o '[0-9]*$')
  [ -d "ck/step-$(printf %08d "$step")" ]
  run ! grep "^$step " ck/.verified
  run ! grep -F 'old checkpoints were not removed' log
  run -0 ranks 1 "${rare[@]}" --epochs 100000 --steps $((step + 1))
  [[ $output == *"resumed from "*"(step $step, made by"* ]]
  grep "^$step " ck/.verified
}

@test "two jobs in one directory: the second is refused with one sentence, and nothing is lost" {
  ranks 1 "${digits[@]}" --epochs 1000 --checkpoint-dir ck --checkpoint-every 5 --seed 1 > first 2>&1 3>&- &
  job=$!
  wait_while_running "$job" compgen -G 'ck/step-*'
  run -2 ranks 1 "${digits[@]}" --checkpoint-dir ck --checkpoint-every 7 --seed 2
  [ "$(spoken | wc -l)" -eq 1 ]
  [[ $(spoken) == *"is in use: job local (restart 0) on "*"choose another checkpoint directory"* ]]
  rank_pids "$job" | xargs kill -TERM
  ended_with 75 first
  run -0 "$bin/ddp-ckpt" verify ck
  step=$(grep -o 'stopped at step [0-9]*' first | grep -o '[0-9]*$')
  [ -d "ck/step-$(printf %08d "$step")" ]
  [ ! -e ck/.owner ]
}

# bats test_tags=full
@test "a later restart of the job takes over; the previous one stops at its next save" {
  SLURM_JOB_ID=17 SLURM_RESTART_COUNT=0 ranks 1 "${digits[@]}" --epochs 1000 --checkpoint-dir ck \
    --checkpoint-every 5 > first 2>&1 3>&- &
  job=$!
  wait_while_running "$job" compgen -G 'ck/step-*'
  # The restart takes over the directory and keeps it until the first run has noticed.
  SLURM_JOB_ID=17 SLURM_RESTART_COUNT=1 ranks 1 "${digits[@]}" --epochs 1000 --checkpoint-dir ck \
    --checkpoint-every 5 > second 2>&1 3>&- &
  later=$!
  status=0
  wait "$job" || status=$?
  rank_pids "$later" | xargs kill -TERM
  wait "$later" || true
  cat first second
  [ "$status" -eq 2 ]
  grep -F 'was taken over by job 17 (restart 1)' first
  grep -F 'resumed from' second
  run -0 "$bin/ddp-ckpt" verify ck
}

@test "a run that is killed repeatedly gives bitwise the same result as an uninterrupted one" {
  run -0 "$BATS_TEST_DIRNAME/killed_often.sh" 1 3
}
