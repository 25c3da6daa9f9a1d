#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Before ddp-run ends, what only the memory of nodes has is saved by a last start of the program.

bats_require_minimum_version 1.5.0

load training
load memory

setup() { memory_setup; }

teardown() {
  [ -z "${stopped:-}" ] || kill -CONT "$stopped" 2> /dev/null || true
  memory_teardown
}

# Sets told, the newest state that ddp-run knows to be in memory only, and saved, the step of the checkpoint.
saved_at_last() {
  told=$(sed -n 's/^ddp-run: the program is started once more, on .*, to save the state of step \([0-9]*\), which only memory has$/\1/p' log)
  saved=$(sed -n 's/^ddp-run: the state of step \([0-9]*\) is saved$/\1/p' log)
  # A copy may be whole before ddp-run is told so.
  [ "$saved" -ge "$told" ]
  [ "$(grep -c '"action":"start"' events.jsonl)" -eq "$1" ] # STARTS
  [ "$(grep -c '"save":true' <(grep '"action":"start"' events.jsonl))" -eq 1 ]
  "$bin/ddp-ckpt" ls ck | grep -q "$saved"
  "$bin/ddp-ckpt" verify ck
  nothing_left
}


# facts CODE: evaluates Python with report, which is run.json, and r, its section about failures.
facts() {
  python3 - "$1" <<'PYTHON'
import json, sys
report = json.load(open("report/run.json"))
r = report["resilience"]
assert abs(r["productive_seconds"] + sum(r["lost"].values()) - r["wall_seconds"]) < 0.001, r
assert eval(sys.argv[1]), (sys.argv[1], report)
PYTHON
}

@test "a signal after a failure saves what only memory has, and the next run ends with the same bits" {
  whole=$(undisturbed --steps 1000)
  run_it -- "$train" "${mlp[@]}" --steps 1000 --checkpoint-memory 20 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" has_copies 10
  # Both are there when it looks again, so the failed generation ends.
  stopped=$(processes "^$run_program --events")
  kill -STOP "$stopped"
  kill_a_rank
  sleep 0.5
  kill -TERM "$stopped"
  kill -CONT "$stopped"
  ended_with 75
  saved_at_last 2
  grep -q "^stopped at step $saved of 1000, because ddp-run has started it only to save its state; checkpoint: .*; run the same command to continue$" log
  DDP_RUN_SAVE=1 run -0 run_it -- "$train" "${mlp[@]}" --steps 1000 --checkpoint-memory 20
  [[ $output == *"resumed from "*"/ck/step-"*" (step $saved, made by 2 ranks)"* ]]
  [ "$(parameters)" = "$whole" ]
}

@test "a program that fails for good leaves a checkpoint of what only memory had" {
  run_it --max-restarts 0 -- "$train" "${mlp[@]}" --steps 100000 --checkpoint-memory 20 --report-dir report > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" has_copies 10
  kill -KILL "$(pid_of_rank 1 "$train")" # rank 0 reports how it fails
  ended_with 1
  saved_at_last 2
  [ "$(grep -n 'is saved$' log | cut -d: -f1)" -lt "$(grep -n 'all 0 restarts are used up (--max-restarts) (.*signal 9 (Killed))$' log | cut -d: -f1)" ]
  run ! grep 'eval loss' <(sed -n '/only memory has$/,$p' log)
  facts "report['steps'] > 0 and report['outcome'] != 'interrupted' and r['goodput']['steps'] >= $saved and r['lost']['repeat'] < r['wall_seconds']"
  run -0 ranks 2 "${mlp[@]}" --steps "$saved"
  [[ $output == *"(step $saved, made by 2 ranks)"* ]]
}

@test "a last start that cannot save ends as was decided, and says what is lost" {
  run_it --max-restarts 0 -- "$train" "${mlp[@]}" --steps 100000 --checkpoint-memory 20 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" has_copies 5
  stopped=$(processes "^$run_program --events")
  kill -STOP "$stopped"
  kill_a_rank
  rm -r ck && touch ck
  kill -CONT "$stopped"
  ended_with 1
  grep -E '^ddp-run: the state of step [0-9]+ is lost with the memory of the nodes: .*; there is no checkpoint$' log
  grep 'all 0 restarts are used up' log
  [ "$(grep -c '"action":"start"' events.jsonl)" -eq 2 ]
  nothing_left
}

@test "without anything to save, a last start ends with one sentence" {
  export DDP_RUN_SAVE=1
  run -0 ranks 2 "${mlp[@]}" --steps 20 --checkpoint-dir other # not from ddp-run
  export DDP_RUN_ID=00000000000000000000000000000001
  refused 1 "there is neither a copy of it in the memory of the nodes nor a checkpoint" "${mlp[@]}" --steps 20 --checkpoint-memory 20
  refused 2 "ddp-run has started the program to save its state, but there is no --checkpoint-dir" --model mlp --data digits --steps 20
  [ -z "$(compgen -G 'ck/step-*')" ]
  run -75 ranks 2 "${mlp[@]}" --steps 40 --checkpoint-dir other --report-dir report
  [[ $output == *"stopped at step 20 of 40, because ddp-run has started it only to save its state; checkpoint: "*"/other/step-00000020; "* ]]
  [ -z "$(compgen -G 'report/*')" ]
}

# bats test_tags=full
@test "parts on two nodes are saved together, and one node saves what all of them have" {
  nodes
  whole=$(undisturbed --steps 1000 --shard optimizer)
  killed_at 60 2 "${mlp[@]}" --steps 1000 --checkpoint-memory 20 --shard optimizer
  DDP_RUN_SAVE=1 started_on_nodes 75 "${mlp[@]}" --steps 1000 --checkpoint-memory 20 --shard optimizer
  saved=$(sed -n 's/^stopped at step \([0-9]*\) of 1000, .*/\1/p' <<< "$output")
  [ "$saved" -ge 60 ] && [ -z "$(find nodes -name 'slurm-*')" ]
  again "${mlp[@]}" --steps 1000 --shard optimizer
  [[ $output == *"(step $saved, made by 2 ranks)"* ]]
  [ "$(parameters)" = "$whole" ]
  # In the middle of an epoch, one rank alone would be refused to train on.
  rm -r ck
  killed_at 60 2 "${mlp[@]}" --steps 1000 --checkpoint-memory 20
  cat log
  DDP_RUN_SAVE=1 on_nodes=1 started_on_nodes 75 "${mlp[@]}" --steps 1000 --checkpoint-memory 20
  saved=$(sed -n 's/^stopped at step \([0-9]*\) of [0-9]*, .*/\1/p' <<< "$output")
  [ "$saved" -ge 60 ] && [ -z "$(find nodes/0 -name 'slurm-*')" ] && [ -n "$(find nodes/1 -name 'slurm-*')" ]
  grep -qE '"world_size": ?2' ck/step-*/manifest.json
}

# shellcheck disable=SC2030,SC2031
started_on_nodes() { # CODE, ARGS...
  local code=$1
  shift
  DDP_RUN_ID=00000000000000000000000000000001 run -"$code" timeout 180 mpirun -n "${on_nodes:-2}" "${program[@]}" "$@"
  echo "$output"
}
