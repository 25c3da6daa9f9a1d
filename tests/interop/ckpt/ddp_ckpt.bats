#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-ckpt from the user's point of view: its output and its exit status.

bats_require_minimum_version 1.5.0

setup() {
  ROOT="$BATS_TEST_TMPDIR/ckpt"
  "$CKPT_FIXTURE" save "$ROOT" 100
  "$CKPT_FIXTURE" save "$ROOT" 200
  STEP="$ROOT/step-00000200"
}

teardown() { [ -z "${saving:-}" ] || kill "$saving"; }

# Changes one byte in the middle of an array.
damage() {
  local offset
  offset=$("$CKPT_BIN" show --json "$1" | /usr/bin/python3 -c "
import json, sys
print(next(a['offset'] for a in json.load(sys.stdin)['arrays'] if a['name'] == '$2') + 5)")
  printf 'X' | dd of="$1/model.h5" bs=1 seek="$offset" conv=notrunc status=none
}

json() { /usr/bin/python3 -c "import json, sys; d = json.load(sys.stdin); print($1)"; }

@test "--help shows examples, and --version shows the version" {
  run "$CKPT_BIN" --help
  [ "$status" -eq 0 ]
  [[ "$output" == *"ddp-ckpt verify ckpt/"* ]]
  [[ "$output" == *"ddp-ckpt convert ckpt/"* ]]
  [[ "$output" == *"ddp-ckpt view ckpt/"* ]]
  run "$CKPT_BIN" --version
  [ "$status" -eq 0 ]
  [[ "$output" =~ ^ddp-ckpt\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
  run "$CKPT_BIN" verify --help
  [ "$status" -eq 0 ]
  [[ "$output" == *PATH* ]]
}

@test "wrong usage exits with 2" {
  for arguments in "" "frobnicate" "ls" "diff $ROOT" "verify --threads 0 $ROOT"; do
    # shellcheck disable=SC2086  # several words
    run "$CKPT_BIN" $arguments
    [ "$status" -eq 2 ]
  done
}

@test "a configuration file sets only the options of the command that runs" {
  printf '%s\n' '[show]' 'json=true' '[ls]' 'verify=true' '[diff]' "B=$ROOT/other" > "$ROOT/../site.ini"
  run "$CKPT_BIN" --config "$ROOT/../site.ini" ls "$ROOT"
  [ "$status" -eq 0 ]
  [[ "${lines[1]}" =~ yes$ ]] # verified, and no JSON
  run "$CKPT_BIN" --config "$ROOT/../site.ini" convert "$STEP" "$ROOT/../model.safetensors"
  [ "$status" -eq 0 ]
  [ -e "$ROOT/../model.safetensors" ]
  [ ! -e "$ROOT/other" ]
}

@test "ls lists the newest first and does not claim to have verified" {
  run "$CKPT_BIN" ls "$ROOT"
  [ "$status" -eq 0 ]
  [[ "${lines[0]}" =~ ^STEP\ +AFTER\ +SAVED\ \(UTC\)\ +SIZE\ +ARRAYS\ +KEPT\ +VERIFIED$ ]]
  [[ "${lines[1]}" =~ ^200\ +-\ +20[0-9-]+\ [0-9:]+\ +[0-9.]+\ KiB\ +14\ +-\ +not\ read$ ]]
  [[ "${lines[2]}" =~ ^100\  ]]
  [ "${#lines[@]}" -eq 3 ]
  run "$CKPT_BIN" ls --verify "$ROOT"
  [[ "${lines[1]}" =~ yes$ ]]
}

@test "ls names damaged checkpoints and other entries that take space" {
  damage "$STEP" model/half
  rm "$ROOT/step-00000100/manifest.json"
  mkdir "$ROOT/.tmp-step-00000300.1.r0.n.p5"
  run "$CKPT_BIN" ls --verify "$ROOT"
  [ "$status" -eq 1 ]
  [[ "${lines[1]}" == *"NO: "*"model/half"* ]]
  [[ "${lines[2]}" == *"NO: "*"manifest.json"* ]]
  [[ "${lines[3]}" == *".tmp-step-00000300.1.r0.n.p5 "* ]]
  run "$CKPT_BIN" ls --verify --json "$ROOT"
  [ "$(json "[c['verified'] for c in d['checkpoints']]" <<<"$output")" = "[False, False]" ]
  [ "$(json "len(d['leftovers'])" <<<"$output")" = 1 ]
}

@test "clean removes leftovers and nothing else, rollback deletes nothing" {
  mkdir -p "$ROOT/.tmp-step-00000300.1.r0.n.p5" "$ROOT/best/.tmp-step-00000200.1.r0.n.p5"
  run "$CKPT_BIN" clean --dry-run "$ROOT"
  [ "$status" -eq 0 ]
  [ -d "$ROOT/.tmp-step-00000300.1.r0.n.p5" ]
  run "$CKPT_BIN" clean --older-than 1h "$ROOT"
  [ -d "$ROOT/.tmp-step-00000300.1.r0.n.p5" ]
  touch "$ROOT/notes" "$ROOT/.tmp-notes" "$ROOT/.tmp-step-00000300" "$ROOT/.verified"
  run "$CKPT_BIN" clean "$ROOT"
  [ "$status" -eq 0 ]
  [ ! -e "$ROOT/.tmp-step-00000300.1.r0.n.p5" ]
  for name in notes .tmp-notes .tmp-step-00000300 .verified step-00000100 step-00000200; do [ -e "$ROOT/$name" ]; done
  [ ! -e "$ROOT/best/.tmp-step-00000200.1.r0.n.p5" ]
  run "$CKPT_BIN" rollback "$ROOT/step-00000100"
  [ "$status" -eq 0 ]
  [ ! -e "$ROOT/step-00000200" ]
  run "$CKPT_BIN" clean "$ROOT"
  compgen -G "$ROOT/.superseded-step-00000200.*"
  run "$CKPT_BIN" clean --set-aside "$ROOT"
  run "$CKPT_BIN" verify "$ROOT"
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -eq 1 ]
}

@test "rollback moves nothing if the checkpoint is damaged, and also clears best/ of later ones" {
  mkdir "$ROOT/best"
  cp -r "$ROOT/step-00000200" "$ROOT/step-00000100" "$ROOT/best"
  cp -r "$ROOT" "$ROOT/../damaged"
  damage "$ROOT/../damaged/step-00000100" model/half
  run "$CKPT_BIN" rollback "$ROOT/../damaged/step-00000100"
  [ "$status" -eq 1 ]
  [[ "$output" == *"model/half"*"damaged"* ]]
  [ -d "$ROOT/../damaged/step-00000200" ] && [ -d "$ROOT/../damaged/best/step-00000200" ]
  run "$CKPT_BIN" rollback "$ROOT/step-00000100"
  [ "$status" -eq 0 ]
  [ ! -e "$ROOT/best/step-00000200" ]
  compgen -G "$ROOT/best/.superseded-step-00000200.*"
  [ "$(cat "$ROOT/best/latest")" = step-00000100 ]
}

@test "--json works in a directory whose name is not UTF-8" {
  local odd=$ROOT/../$'odd\xff'
  cp -r "$ROOT" "$odd"
  local arguments
  for arguments in ls show verify "diff $ROOT"; do
    # shellcheck disable=SC2086  # several words
    run "$CKPT_BIN" $arguments --json "$odd"
    [ "$status" -eq 0 ]
    json "d.get('error', '')" <<<"$output"
    [ "$(json "d.get('error', '')" <<<"$output")" = "" ]
  done
}

@test "clean and rollback change nothing while a run saves to the directory" {
  mkdir "$ROOT/.tmp-step-00000300.7.r0.n.p5"
  sleep 600 3>&- &
  saving=$!
  printf '{"owner": "7.r0.n.p%d", "token": "x", "machine": "%s %s", "started": %d, "beat": 1000000000000000001}\n' \
    "$saving" "$(cat /proc/sys/kernel/random/boot_id)" "$(readlink /proc/self/ns/pid)" \
    "$(awk '{ print $22 }' "/proc/$saving/stat")" > "$ROOT/.owner"
  for command in "clean $ROOT" "clean --set-aside $ROOT" "rollback $ROOT/step-00000100"; do
    # shellcheck disable=SC2086  # several words
    run "$CKPT_BIN" $command
    [ "$status" -eq 1 ]
    [[ "$output" == *"is in use: job 7 (restart 0) on n, process $saving saves to it"* ]]
  done
  [ -d "$ROOT/.tmp-step-00000300.7.r0.n.p5" ]
  [ -d "$STEP" ]
  run "$CKPT_BIN" clean --dry-run "$ROOT"
  [ "$status" -eq 0 ]
}

@test "an empty directory has no checkpoints, and a missing one is an error" {
  mkdir "$BATS_TEST_TMPDIR/empty"
  run "$CKPT_BIN" ls "$BATS_TEST_TMPDIR/empty"
  [ "$status" -eq 0 ]
  [[ "$output" == "no checkpoints in "* ]]
  run "$CKPT_BIN" ls "$BATS_TEST_TMPDIR/missing"
  [ "$status" -eq 1 ]
  [[ "$output" == "ddp-ckpt: there is no checkpoint '"*"missing'" ]]
}

@test "show lists arrays and state, of the newest checkpoint for a directory" {
  run "$CKPT_BIN" show "$ROOT"
  [ "$status" -eq 0 ]
  [[ "$output" =~ step\ +200 ]]
  [[ "$output" =~ model/conv1.weight\ +float32\ +\[30,\ 1000\]\ +[0-9a-f]{8}\ +model.h5 ]]
  [[ "$output" =~ optim/step\ +int64\ +\[\] ]]
  [[ "$output" == *'"seed": 18446744073709551615'* ]]
  run "$CKPT_BIN" show --json "$ROOT/step-00000100"
  [ "$(json "(d['step'], d['epoch'], d['state']['lr'], len(d['arrays']))" <<<"$output")" = "(100, 2, 0.1, 14)" ]
}

@test "the commands for checkpoints say what another directory or a file is" {
  printf 'x' > "$BATS_TEST_TMPDIR/own.pt"
  for command in show verify ls; do
    run "$CKPT_BIN" "$command" "$BATS_TEST_TMPDIR/own.pt"
    [ "$status" -eq 1 ]
    [[ "$output" == *"own.pt' is a file, not a checkpoint; ddp-ckpt inspect "*" lists what is in it" ]]
  done
  mkdir "$BATS_TEST_TMPDIR/other"
  for command in show verify; do
    run "$CKPT_BIN" "$command" "$BATS_TEST_TMPDIR/other"
    [ "$status" -eq 1 ]
    [[ "$output" == "ddp-ckpt: there is no checkpoint in "* ]]
    [ "${#lines[@]}" -eq 1 ]
  done
}

@test "a checkpoint under the name of another step is not the newest one" {
  mv "$ROOT/step-00000100" "$ROOT/step-00000999"
  run "$CKPT_BIN" show "$ROOT"
  [[ "$output" =~ step\ +200 ]]
  run "$CKPT_BIN" verify "$ROOT"
  [ "$status" -eq 1 ]
  [[ "$output" == *"step-00000999': its manifest says step 100; rename it to step-00000100"* ]]
  run "$CKPT_BIN" ls "$ROOT"
  [[ "${lines[1]}" == *"its manifest says step 100"* ]]
}

@test "verify shows no progress without a terminal and names the damage" {
  run "$CKPT_BIN" verify "$ROOT"
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -eq 2 ]
  [[ "${lines[0]}" == "whole: '$STEP', 14 arrays, "* ]]
  damage "$STEP" optim/conv1.weight/exp_avg
  run "$CKPT_BIN" verify "$ROOT"
  [ "$status" -eq 1 ]
  [[ "${lines[0]}" == "DAMAGED: "*"'optim/conv1.weight/exp_avg'"* ]]
  [[ "${lines[1]}" == "whole: "*"step-00000100"* ]]
  run "$CKPT_BIN" verify "$STEP"
  [ "$status" -eq 1 ]
  run "$CKPT_BIN" verify --json "$ROOT"
  [ "$status" -eq 1 ]
  [ "$(json "(d['whole'], [c['whole'] for c in d['checkpoints']])" <<<"$output")" = "(False, [False, True])" ]
}

@test "verify finds damage outside all arrays" {
  printf 'X' | dd of="$STEP/model.h5" bs=1 seek=200 conv=notrunc status=none
  run "$CKPT_BIN" verify "$STEP"
  [ "$status" -eq 1 ]
  [[ "$output" == *"the HDF5 metadata of 'model.h5' is damaged"* ]]
}

@test "verify of an empty directory fails" {
  run "$CKPT_BIN" verify "$BATS_TEST_TMPDIR/missing"
  [ "$status" -eq 1 ]
  mkdir "$BATS_TEST_TMPDIR/empty"
  run "$CKPT_BIN" verify "$BATS_TEST_TMPDIR/empty"
  [ "$status" -eq 1 ]
}

@test "verify shows progress on a terminal" {
  run script -qec "'$CKPT_BIN' verify '$STEP'" /dev/null
  [ "$status" -eq 0 ]
  [[ "$output" == *"step-00000200: "*" %, "*" of "* ]]
  run script -qec "'$CKPT_BIN' diff '$STEP' '$STEP'" /dev/null
  [ "$status" -eq 0 ]
  [[ "$output" == *"diff: "*" %, "*" of "* ]]
}

@test "diff exits with 0 if equal, else with 1, and reports the largest difference" {
  run "$CKPT_BIN" diff "$ROOT/step-00000100" "$STEP"
  [ "$status" -eq 0 ]
  [ "$output" = "14 arrays bitwise equal, 0 different, 0 only in A, 0 only in B" ]
  "$CKPT_FIXTURE" save "$ROOT" 300 0.25
  run "$CKPT_BIN" diff "$STEP" "$ROOT"
  [ "$status" -eq 1 ]
  [ "${lines[0]}" = "different values: model/conv1.weight, 1 elements, max |A - B| = 0.25" ]
  run "$CKPT_BIN" diff --json "$STEP" "$ROOT"
  [ "$status" -eq 1 ]
  [ "$(json "(d['equal'], d['equal_arrays'], d['different'])" <<<"$output")" = "(False, 13, [{'elements': 1, 'max_abs': 0.25, 'name': 'model/conv1.weight'}])" ]
}

@test "arrays in parts: show lists the parts, verify names the damaged one, diff compares whole arrays" {
  local parts=$BATS_TEST_TMPDIR/parts
  "$CKPT_FIXTURE" parts "$parts" 1
  "$CKPT_FIXTURE" parts "$parts" 2
  run "$CKPT_BIN" show "$parts/step-00000001"
  [ "$status" -eq 0 ]
  [[ "$output" =~ optim/tiles\ +float32\ +\[6,\ 8\]\ +4\ parts ]]
  [[ "$output" =~ from\ \[3,\ 4\]\ +\[3,\ 4\]\ +[0-9a-f]{8}\ +rank-00003-of-00004.h5 ]]
  run "$CKPT_BIN" show --json "$parts/step-00000001"
  [ "$(json "[(a['name'], a['shape'], len(a.get('parts', []))) for a in d['arrays'] if a['name'] != 'optim/alone']" <<<"$output")" = \
    "[('model/bias', [2], 0), ('optim/rows', [6, 8], 4), ('optim/tiles', [6, 8], 4)]" ]
  offset=$(json "[p['offset'] for a in d['arrays'] for p in a.get('parts', []) if p['start'] == [3, 4]][0]" <<<"$output")
  run "$CKPT_BIN" diff "$parts/step-00000001" "$parts/step-00000002"
  [ "$status" -eq 0 ]
  [ "$output" = "4 arrays bitwise equal, 0 different, 0 only in A, 0 only in B" ]
  printf 'X' | dd of="$parts/step-00000001/rank-00003-of-00004.h5" bs=1 seek="$offset" conv=notrunc status=none
  run "$CKPT_BIN" verify "$parts"
  [ "$status" -eq 1 ]
  [[ "${lines[0]}" == "whole: "*"step-00000002', 4 arrays, "* ]]
  [[ "${lines[1]}" == "DAMAGED: "*"array 'optim/tiles': bytes 0 to 47 (in 'rank-00003-of-00004.h5'"* ]]
}

@test "with --json errors are JSON too" {
  for command in ls show verify "diff $ROOT"; do
    # shellcheck disable=SC2086  # several words
    run --separate-stderr "$CKPT_BIN" $command --json "$BATS_TEST_TMPDIR/missing"
    [ "$status" -eq 1 ]
    [[ "$(json "d.get('error') or d['checkpoints'][0]['problem']" <<<"$output")" == *missing* ]]
  done
}

@test "options can come from a file" {
  printf '[ls]\njson=true\n' >"$BATS_TEST_TMPDIR/options"
  run "$CKPT_BIN" --config "$BATS_TEST_TMPDIR/options" ls "$ROOT"
  [ "$status" -eq 0 ]
  [ "$(json "len(d['checkpoints'])" <<<"$output")" = 2 ]
}

# Checkpoints of a program that saves in the order of its files; the last one was cut off.
foreign() {
  local step
  for step in 500 1000 1500; do
    mkdir -p "$1/checkpoint-$step"
    printf '%0300000d' "$step" > "$1/checkpoint-$step/model.safetensors"
    [ $step = 1500 ] || echo "$step" > "$1/checkpoint-$step/trainer_state.json"
  done
}

# The lines of a job script.
resume_arguments() {
  local ckpt
  ckpt=$("$CKPT_BIN" newest "$1" 2> "$BATS_TEST_TMPDIR/why") || return
  echo "train.py" ${ckpt:+--resume "$ckpt"}
}

@test "a job resumes from the newest sealed checkpoint, and from none that was cut off or damaged" {
  local out="$BATS_TEST_TMPDIR/out"
  [ "$(resume_arguments "$out")" = train.py ]
  foreign "$out"
  run ! resume_arguments "$out"
  grep -q 'is whole, of 3' "$BATS_TEST_TMPDIR/why"
  run -0 "$CKPT_BIN" seal "$out/checkpoint-500" "$out/checkpoint-1000/"
  [[ "${lines[0]}" =~ ^"sealed: '$out/checkpoint-500', 2 files, 293.0 KiB"$ ]]
  [ "$(resume_arguments "$out")" = "train.py --resume $out/checkpoint-1000" ]
  grep -qx "passed over: '$out/checkpoint-1500' is not sealed: its save was not completed, or it was never sealed" \
    "$BATS_TEST_TMPDIR/why"
  printf X | dd of="$out/checkpoint-1000/model.safetensors" bs=1 seek=7 conv=notrunc status=none
  [ "$(resume_arguments "$out")" = "train.py --resume $out/checkpoint-500" ]
  run -1 "$CKPT_BIN" verify "$out"
  [[ "$output" == *"DAMAGED: '$out/checkpoint-1000' is not what was sealed: 'model.safetensors' is damaged"* ]]
  [[ "$output" == *"NOT VERIFIED: '$out/checkpoint-1500' is not sealed: if it is complete, run ddp-ckpt seal"* ]]
  [[ "$output" == *"whole: '$out/checkpoint-500', 2 files as sealed, 293.0 KiB"* ]]
}

@test "a sealed file, and our own checkpoint, which needs no seal" {
  local out="$BATS_TEST_TMPDIR/out"
  mkdir "$out"
  echo weights > "$out/last.ckpt"
  run -0 "$CKPT_BIN" seal --json "$out/last.ckpt"
  [ "$(json "d['sealed'][0]['files'], d['sealed'][0]['bytes']" <<< "$output")" = "1 8" ]
  run -0 --separate-stderr "$CKPT_BIN" newest --json "$out"
  [ "$(json "d['checkpoint'] == '$out/last.ckpt', d['passed_over']" <<< "$output")" = "True []" ]
  run -0 "$CKPT_BIN" verify "$out/last.ckpt"
  run -0 "$CKPT_BIN" newest "$ROOT"
  [ "$output" = "$ROOT/step-00000200" ]
  run -1 "$CKPT_BIN" seal "$STEP/" "$out/last.ckpt.seal.json" "$out/last.ckpt"
  [[ "${lines[0]}" == *"needs no seal" ]]
  [[ "${lines[1]}" == *"is a seal itself" ]]
  [[ "${lines[2]}" == "sealed: '$out/last.ckpt', 1 file, 8 B" ]] # in spite of the others
  run -1 bash -c '"$0" newest "$1" > /dev/full' "$CKPT_BIN" "$out"
  foreign "$out"
  run -1 "$CKPT_BIN" seal "$out/"
  [[ "$output" == *"'$out/' holds checkpoints: seal them, such as '$out/checkpoint-"* ]]
  run -1 "$CKPT_BIN" seal "$out/nothing"
  [[ "$output" == *"does not exist"* ]]
}

@test "watch seals what a job has finished, and ends when it is told to" {
  local out="$BATS_TEST_TMPDIR/out"
  mkfifo "$BATS_TEST_TMPDIR/lines"
  "$CKPT_BIN" watch --quiet 1 "$out" > "$BATS_TEST_TMPDIR/lines" 2> "$BATS_TEST_TMPDIR/why" 3>&- &
  saving=$!
  exec {lines}< "$BATS_TEST_TMPDIR/lines"
  foreign "$out"
  read -r -t 60 -u "$lines" first
  read -r -t 60 -u "$lines" second
  [ "$(printf '%s\n' "$first" "$second" | sort)" = "sealed: '$out/checkpoint-1000', 2 files, 293.0 KiB
sealed: '$out/checkpoint-500', 2 files, 293.0 KiB" ]
  mkdir "$out/checkpoint-2000"
  echo 2000 > "$out/checkpoint-2000/trainer_state.json"
  kill "$saving" # the last one is saved when the job ends
  wait "$saving"
  saving=
  read -r -t 60 -u "$lines" third
  [ "$third" = "sealed: '$out/checkpoint-2000', 1 file, 5 B" ]
  grep -qx "not sealed: '$out/checkpoint-1500': nothing says that its save has finished" "$BATS_TEST_TMPDIR/why"
}
