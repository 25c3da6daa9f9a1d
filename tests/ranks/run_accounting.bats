#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-run on one host: where the time of a run went.

bats_require_minimum_version 1.5.0

load training

setup() {
  training_setup
  run_program=$bin/ddp-run
  # A program that makes 20 steps of 50 ms, and keeps each tenth. The first start kills itself after
  # step 15; $STOP_AT is a step after which it asks to be continued.
  cat > steps.sh <<'PROGRAM'
#!/bin/bash
tell() { [ "$RANK" -ne 0 ] || echo "$1" >&"$DDP_RUN_EVENTS"; }
kept=$(cat kept 2> /dev/null || echo 0)
tell '{"event": "restoring"}'
tell "{\"event\": \"training\", \"step\": $kept}"
for ((step = kept + 1; step <= ${STEPS:-20}; step++)); do
  sleep 0.05
  made=$((step - kept))
  tell "{\"event\": \"progress\", \"step\": $step, \"step_seconds\": $((made / 20)).$(printf %02d $((made * 5 % 100))), \"stall_seconds\": 0, \"saves\": 0}"
  if [ $((step % 10)) -eq 0 ]; then
    [ "$RANK" -ne 0 ] || echo "$step" > kept
    tell "{\"event\": \"kept\", \"tier\": \"disk\", \"step\": $step}"
  fi
  if [ "$step" -eq 15 ] && [ "$DDP_RUN_GENERATION" -eq 1 ] && [ -n "${DIES:-}" ] ; then kill -KILL $$; fi
  [ "$step" -ne "${STOP_AT:-0}" ] || exit 75
done
PROGRAM
  chmod +x steps.sh
}

teardown() { kill_job; }

run_it() { timeout 120 "$run_program" "$@"; }

# facts FILE CODE: evaluates Python with r, the resilience in FILE, and events, the lines of the log.
facts() {
  python3 - "$1" "$2" "${3:-report/events.jsonl}" <<'PYTHON'
import json, sys
r = json.load(open(sys.argv[1]))
events = [json.loads(line) for line in open(sys.argv[3])]
r = r.get("resilience", r)
lost = r["lost"]
generations = r["generations"]
total = r["productive_seconds"] + sum(lost.values())
assert abs(total - r["wall_seconds"]) < 0.001, (total, r["wall_seconds"])
for key in ["productive"] + list(lost):
    parts = [g["seconds"] for g in generations] + [r["seconds_of_older_generations"], r["seconds_after_the_last"]]
    whole = r["productive_seconds"] if key == "productive" else lost[key]
    assert abs(sum(part[key] for part in parts) - whole) < 0.001, key
assert eval(sys.argv[2]), (sys.argv[2], r)
PYTHON
}

@test "a killed rank costs the steps since the last checkpoint, and each moment has one use" {
  DIES=1 run -0 run_it --report-dir report -- ./steps.sh
  [[ ${lines[-1]} == "ddp-run: the program made progress in "*" % of "*" (ETTR 0."*"); the biggest loss is "* ]]
  facts report/resilience.json 'r["faults"] == 1 and r["steps"] == 20 and r["steps_repeated"] == 5'
  facts report/resilience.json '[g["from_step"] for g in generations] == [0, 10] and generations[0]["to_step"] == 15'
  facts report/resilience.json 'generations[0]["failed"] and "signal 9" in generations[0]["why_ended"] and len(generations[0]["blamed"]) == 1'
  facts report/resilience.json 'generations[1]["restored_from"] == "disk@10" and generations[1]["steps_repeated"] == 5 and not generations[1]["failed"]'
  # 20 steps of at least 50 ms count, up to what the way of a line takes; 5 were made twice, and the tail of the first start is lost.
  facts report/resilience.json 'r["productive_seconds"] > 0.9 and 0.2 < lost["repeat"] < r["productive_seconds"]'
  facts report/resilience.json 'abs(r["wall_seconds"] - (events[-1]["seconds"] - events[0]["seconds"])) < 0.001'
  facts report/resilience.json 'sum(e.get("event") == "failed" for e in events) == 1 and sum(e.get("signal") == 9 for e in events) == 1'
  facts report/resilience.json 'r["outcome"] == "finished" and r["jobs"] == 1 and lost["queue"] == 0'
}

@test "a run that is continued three times is one run, with the queue between its jobs" {
  for stop in 10 15 17; do
    STOP_AT=$stop run -75 run_it --report-dir report -- ./steps.sh
  done
  facts report/resilience.json 'r["outcome"] == "to be continued" and r["jobs"] == 3'
  facts report/resilience.json 'r["steps"] == 10 and r["productive_seconds"] > 0.4' # 7 are not kept
  run -0 run_it --report-dir report -- ./steps.sh
  facts report/resilience.json 'r["outcome"] == "finished" and r["jobs"] == 4 and lost["queue"] > 0'
  facts report/resilience.json 'r["steps"] == 20 and r["productive_seconds"] > 0.9 and r["faults"] == 0'
  facts report/resilience.json 'r["steps_repeated"] == 12' # 5 steps of the second job, and 7 of the third
}

@test "a run after a finished one in the same directory has an account of its own" {
  DIES=1 run -0 run_it --report-dir report -- ./steps.sh
  rm kept
  run -0 run_it --report-dir report -- ./steps.sh
  facts report/resilience.json 'r["faults"] == 0 and r["jobs"] == 1 and r["steps"] == 20 and len(generations) == 1'
  # With nothing left to do, the report stays.
  cp report/resilience.json before.json
  run -0 run_it --report-dir report -- ./steps.sh
  cmp before.json report/resilience.json
}

@test "a run that failed and begins with the first step has an account of its own, another one continues" {
  DIES=1 run -1 run_it --report-dir report --max-restarts 0 -- ./steps.sh
  facts report/resilience.json 'r["faults"] == 1 and r["outcome"] == "failed"'
  cp -r report continued
  cp kept kept.failed
  rm kept
  run -0 run_it --report-dir report -- ./steps.sh
  facts report/resilience.json 'r["faults"] == 0 and r["jobs"] == 1'
  mv kept.failed kept
  run -0 run_it --report-dir continued -- ./steps.sh
  facts continued/resilience.json 'r["faults"] == 1 and r["jobs"] == 2 and r["steps"] == 20' continued/events.jsonl
}

@test "a run without any step tells how it ended, also in a new report directory with events elsewhere" {
  run -1 run_it --report-dir failed -- false
  facts failed/resilience.json 'r["outcome"] == "failed" and r["generations_in_all"] == 3' failed/events.jsonl
  run -75 run_it --events events.jsonl --report-dir stopped -- sh -c 'exit 75'
  facts stopped/resilience.json 'r["outcome"] == "to be continued"' events.jsonl
  [ "$(grep -c 'warning' <<< "$output")" -eq 0 ]
}

# bats test_tags=full
@test "a report directory that cannot be written costs one warning, and no run" {
  : > file
  DIES=1 run -0 run_it --report-dir file/report -- ./steps.sh
  [ "$(grep -c '^ddp-run: warning: ' <<< "$output")" -eq 1 ]
  [[ $output == *"(ETTR 0."* ]]
  rm kept
  mkdir -p report/resilience.json/taken
  DIES=1 run -0 run_it --report-dir report -- ./steps.sh
  [ "$(grep -c '^ddp-run: warning: where the time went is not written: ' <<< "$output")" -eq 1 ]
  [ "$(grep -c '^{' report/events.jsonl)" -gt 5 ]
}

@test "what others leave in the report directory is neither followed nor believed" {
  mkdir report
  ln -s "$work/target" report/events.jsonl
  run -0 run_it --report-dir report -- ./steps.sh
  [[ $output == *"ddp-run: warning: no events are written: "* ]]
  [ ! -e target ]
  rm report/events.jsonl kept
  # Of another program, damaged, and cut.
  printf '%s\n' '{"event": "begin", "run": [], "nodes": -7, "seconds": "x"}' '{"a": [' \
    '{"action": "start", "nodes": [1, 2], "generation": 1e9}' > report/events.jsonl
  head -c 100000 /dev/urandom >> report/events.jsonl
  ln -s "$work/target" report/run.json
  run -0 run_it --report-dir report -- ./steps.sh
  python3 -c 'import json; r = json.load(open("report/resilience.json")); assert r["steps"] == 20 and r["faults"] == 0, r'
  [ ! -e target ] && [ -L report/run.json ]
}

@test "ddp-train tells where its time goes, and its run.json has it" {
  mpi=(--launcher mpirun --launcher-options "--oversubscribe --bind-to none" --ranks-per-node 2)
  "$run_program" "${mpi[@]}" -- "$train" --model mlp --data digits --batch 16 --checkpoint-dir ck \
    --checkpoint-every 200 --report-dir report --steps 2000 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -qs '"kept"' report/events.jsonl
  kill -KILL "$(processes "^$train" | tail -n 1)"
  wait "$job"
  cat log
  tail -n 1 log | grep -E '^ddp-run: the program made progress in [0-9.]+ % of '
  cmp <(python3 -c 'import json; print(json.load(open("report/run.json"))["resilience"])') \
    <(python3 -c 'import json; print(json.load(open("report/resilience.json")))')
  facts report/run.json 'r["faults"] == 1 and r["steps"] == 2000'
  facts report/run.json 'r["steps_repeated"] == generations[0]["to_step"] - generations[1]["from_step"]'
  facts report/run.json '[e["step"] for e in events if e.get("event") == "training"] == [g["from_step"] for g in generations]'
  facts report/run.json '[e["step"] for e in events if e.get("event") == "progress" and e["generation"] == 1][-1] == generations[0]["to_step"]'
  facts report/run.json 'r["checkpoints"]["saves"] >= 9 and lost["checkpoint_stall"] > 0 and lost["load"] > 0 and lost["launch"] > 0'
  # A row for each step of the whole run, by the start that made it last.
  python3 - <<'PYTHON'
import csv, json
rows = list(csv.DictReader(open("report/steps.csv")))
begun = json.load(open("report/run.json"))["resilience"]["generations"][1]["from_step"]
assert [int(row["step"]) for row in rows] == list(range(1, 2001)), len(rows)
assert {row["generation"] for row in rows[:begun]} == {"1"} and {row["generation"] for row in rows[begun:]} == {"2"}
assert {row["ranks"] for row in rows} == {"2"}
PYTHON
}

# bats test_tags=full
@test "a start beside a living run in its directory leaves the record of that run alone" {
  STEPS=60 run_it --report-dir report -- ./steps.sh > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -qs '"training"' report/events.jsonl
  mkdir other && cd other
  STEPS=2 run -0 run_it --report-dir ../report -- ../steps.sh
  [[ $output == *"ddp-run: warning: another ddp-run writes to ../report/events.jsonl, so this one records nothing there"* ]]
  cd ..
  kill -0 "$job" # otherwise nothing was shown
  wait "$job"
  facts report/resilience.json 'r["outcome"] == "finished" and r["jobs"] == 1 and r["faults"] == 0 and r["steps"] == 60'
}

@test "a checkpoint is told when it is complete, not when the next one is made" {
  "$run_program" --launcher direct --ranks-per-node 1 -- "$train" --model mlp --width 900 --layers 4 --batch 256 \
    --data digits --epochs 1000 --checkpoint-dir ck --checkpoint-every 40 --report-dir report --log-every 1 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -qs '"kept"' report/events.jsonl
  grep -q '"kept".*"step":40' report/events.jsonl
  run ! grep -q ' step 80 ' <(tr / ' ' < log)
  kill -TERM "$job"
  wait "$job" || true
}
