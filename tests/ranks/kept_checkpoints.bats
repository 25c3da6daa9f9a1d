#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The times at which ddp-train saves, the checkpoints that it keeps, and the commands after saves:
# with several processes that are killed, on full disks, and after rollbacks.

bats_require_minimum_version 1.5.0

load training

setup() { training_setup; }

teardown() { unmount_disk; }

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

@test "--checkpoint-every auto prints Young's interval" {
  run -0 ranks 2 "${model[@]}" --epochs 2 --checkpoint-dir ck --checkpoint-every auto --mtbf 6h --keep-every 3
  [[ $output =~ "checkpoint: saves every "[0-9.]+" s of training from now on (--checkpoint-every auto): a save stops" ]]
  [[ $output == *"the job is expected to fail every 6 h (--mtbf)"* ]]
}

# Prints the names of the checkpoints in the directories.
steps_in() {
  local directory
  for directory in "$@"; do (cd "$directory" && compgen -G 'step-*' | sort | tr '\n' ' '); done
}

# killed_often SECONDS...: starts the same run repeatedly and kills it after each of the times.
killed_often() {
  local seconds job
  for seconds in "$@"; do
    ranks 2 "${kept[@]}" > log 2>&1 3>&- &
    job=$!
    sleep "$seconds"
    mapfile -t pids < <(rank_pids "$job")
    [ "${#pids[@]}" -eq 0 ] || kill -KILL "${pids[@]}" || true
    wait "$job" || true
    compgen -G 'ck/step-*' || continue
    # Every checkpoint under a final name is complete.
    run -0 "$bin/ddp-ckpt" verify ck
    [ "$(compgen -G 'ck/best/step-*' | wc -l)" -le 2 ]
  done
}

# bats test_tags=full
@test "kills at any moment: permanent checkpoints and the best are those of a run that was not interrupted" {
  kept=("${model[@]}" --epochs 12 --deterministic --checkpoint-dir ck --checkpoint-every 4 --keep-last 1
    --keep-every 30 --keep-best --best-metric accuracy)
  run -0 ranks 2 "${kept[@]}"
  whole=$(parameters)
  expected=$(steps_in ck ck/best)
  [ "$(compgen -G 'ck/best/step-*' | wc -l)" -eq 1 ]
  for step in 30 60 90; do [ -d "ck/step-000000$step" ]; done
  rm -rf ck
  local times=(1.1 1.3 1.2 1.6)
  [ -z "${SLURM_DDP_LONG_TESTS:-}" ] || times+=(1.0 1.05 1.15 1.25 1.35 1.4 1.45 1.5 1.55 1.7 1.8 1.9 2.0)
  killed_often "${times[@]}"
  run -0 ranks 2 "${kept[@]}"
  [ "$(parameters)" = "$whole" ]
  [ "$(steps_in ck ck/best)" = "$expected" ]
  run -0 "$bin/ddp-ckpt" ls --verify ck
  [[ $output =~ 30\ .*\ for\ good\ +yes ]]
  [[ $output =~ (^|$'\n')best/step-[0-9]+:\ accuracy\ [0-9.]+,\ loss\ [0-9.]+\ \(verified\) ]]
  run -1 grep -c '\.tmp-\|\.trash-' <<< "$output"
}

@test "permanent checkpoints survive a rollback before them and a run without --keep-every" {
  run -0 ranks 1 "${model[@]}" --steps 40 --checkpoint-dir ck --checkpoint-every 5 --keep-last 1 --keep-every 10
  [ "$(steps_in ck)" = "step-00000010 step-00000020 step-00000030 step-00000040 " ]
  run -0 ranks 1 "${model[@]}" --steps 32 --checkpoint-dir ck --checkpoint-every 5 --keep-last 1 --resume ck/step-00000020
  [ "$(steps_in ck)" = "step-00000010 step-00000020 step-00000032 " ]
  for step in 30 40; do compgen -G "ck/.superseded-step-000000$step.*"; done
  run -0 "$bin/ddp-ckpt" rollback ck/step-00000010
  run -0 "$bin/ddp-ckpt" verify ck
}

# bats test_tags=full
@test "on a disk without room for a best checkpoint, training continues, and the newest one stays complete" {
  mkdir disk
  mount -t tmpfs -o size=100m none disk || skip "mounting a tmpfs needs root"
  # A checkpoint takes about 40 MB: two of --keep-last 1 while one replaces the other, none in best/.
  run --separate-stderr ranks 1 --model mlp --width 1850 --layers 4 --batch 64 --momentum 0 --epochs 3 --keep-last 1 \
    --checkpoint-dir disk/ck --keep-best --keep-every 1epoch
  echo "$output" && echo "$stderr"
  [[ $stderr == *"was not saved"*"No space left on device"* ]]
  run -0 "$bin/ddp-ckpt" verify disk/ck
  [[ $output == *"whole: "* ]]
}

# bats test_tags=full
@test "--after-save runs after each commit; the end of the run waits for it; a stop waits only briefly" {
  run -0 ranks 2 "${model[@]}" --epochs 3 --checkpoint-dir "ck ;touch injected" \
    --after-save 'sleep 0.1; ls "$SLURM_DDP_CHECKPOINT"/manifest.json && echo "$SLURM_DDP_STEP" >> steps'
  [ "$(tail -n 1 steps)" = 75 ]
  [ ! -e injected ]
  grep -q '^step 75: exit status 0$' "ck ;touch injected/after-save.log"

  run -0 --separate-stderr ranks 2 "${model[@]}" --epochs 2 --checkpoint-dir failing --after-save 'echo no bucket; exit 3'
  [[ $stderr == *"warning: the command after the checkpoint of step 50 failed: exit status 3: no bucket; output: "*"failing/after-save.log"* ]]
  run -0 --separate-stderr ranks 2 "${model[@]}" --epochs 2 --checkpoint-dir hanging --after-save 'sleep 98761' --after-save-limit 1s
  [[ $output == *"checkpoint: waiting up to 1 s for the command after the checkpoint of step 50"* ]]
  [[ $stderr == *"warning: the command after the checkpoint of step "* ]]
  run ! pgrep -f '^sleep 98761$'

  ranks 2 "${model[@]}" --epochs 100000 --checkpoint-dir stopped --after-save 'sleep 98762' > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" compgen -G 'stopped/step-*'
  rank_pids "$job" | xargs kill -TERM
  ended_with 75
  grep -q 'warning: the command after the checkpoint of step [0-9]* was stopped, because the run is over' log
  run ! pgrep -f '^sleep 98762$'
}
