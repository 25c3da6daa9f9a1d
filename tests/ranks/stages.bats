#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train --stages: the parameters of one process, checkpoints of any layout, refused options, killed ranks, and the
# report.

bats_require_minimum_version 1.5.0
load training

setup() {
  training_setup
  export OMPI_MCA_hwloc_base_binding_policy=none
}

mlp=(--model mlp --layers 7 --width 32 --data digits --batch 16 --accumulate 4 --optimizer adam --lr 0.01)

# sum N ARGS...: the checksum of the parameters after a training.
sum() {
  local output
  output=$(ranks "$@") || { echo "$output" && return 1; }
  parameters
}

# ranks_and_options LAYOUT
ranks_and_options() {
  case $1 in
    none) echo 1 ;;
    2) echo 2 --stages 2 ;;
    2-interleaved) echo 2 --stages 2 --chunks 2 ;;
    4) echo 4 --stages 4 ;;
    2x2) echo 4 --stages 2 --accumulate 2 ;;
  esac
}

# layout LAYOUT ARGS...: the checksum after a training of the mlp in this layout.
layout() {
  local words
  read -ra words <<< "$(ranks_and_options "$1")"
  sum "${words[0]}" "${mlp[@]}" "${words[@]:1}" "${@:2}"
}

# losses N ARGS...: the training and the evaluation loss.
losses() { ranks "$@" | sed -n 's/^done: .* train loss \([0-9.]*\), eval loss \([0-9.]*\),.*/\1 \2/p'; }

# The two differ at most by a unit or two in the last digit that is printed.
are_close() {
  echo "$1 and $2"
  [ -n "$1" ]
  paste -d ' ' <(echo "$1") <(echo "$2") |
    awk '($1 - $3) ^ 2 > 9e-8 || ($2 - $4) ^ 2 > 9e-8 { bad = 1 } END { exit bad }'
}

@test "stages have the parameters of one process, with every schedule" {
  local one
  one=$(layout none --steps 12)
  [ "$(layout 2 --steps 12)" = "$one" ]
  [ "$(layout 2 --steps 12 --pipeline-schedule gpipe)" = "$one" ]
  [ "$(layout 2-interleaved --steps 12)" = "$one" ]
  [ "$(layout 4 --steps 12 --stage-balance 1,1,1,5)" = "$one" ]
  [ "$(layout 4 --steps 12 --stage-balance time)" = "$one" ]
  [ "$(sum 3 "${mlp[@]}" --stages 3 --steps 12)" = "$one" ]
  [ "$(layout 2 --steps 12 --seed 2)" != "$one" ]
}

@test "pipelines have the parameters of as many ranks with whole models" {
  local whole
  whole=$(sum 2 "${mlp[@]}" --steps 6)
  [ "$(sum 4 "${mlp[@]}" --stages 2 --steps 6)" = "$whole" ]
}

# bats test_tags=full
@test "stages train and evaluate models with batch normalization as one process does" {
  local model=(--model cifar-cnn --width 4 --data synthetic --batch 4 --accumulate 4 --steps 4 --precision bf16)
  local whole
  whole=$(ranks 1 "${model[@]}" | grep -o 'train loss.*accuracy [0-9.]*')
  [ -n "$whole" ]
  [ "$(ranks 2 "${model[@]}" --stages 2 | grep -o 'train loss.*accuracy [0-9.]*')" = "$whole" ]
  whole=$(sum 1 "${model[@]}")
  [ "$(sum 2 "${model[@]}" --stages 2)" = "$whole" ]
}

@test "a clipped step, and one that is skipped, are those of one process" {
  local run=("${mlp[@]}" --optimizer sgd --lr 0.1 --steps 8 --on-nan skip)
  are_close "$(losses 1 "${run[@]}" --clip 0.05)" "$(losses 2 "${run[@]}" --clip 0.05 --stages 2)"
  local unclipped
  unclipped=$(losses 1 "${run[@]}")
  run ! are_close "$unclipped" "$(losses 2 "${run[@]}" --clip 0.05 --stages 2)"
  run ranks 2 "${run[@]}" --lr 1e30 --stages 2
  [[ $output == *"step 2: update skipped: the loss is not finite on rank 1"* ]]
  [[ $(sum 1 "${run[@]}" --lr 1e30) == "$(parameters)" ]]
  [ -n "$(parameters)" ]
}

# skipped N ARGS...: a training with a loss scale that overflows: its skipped steps and its parameters.
skipped() {
  ranks "$1" --model mlp --layers 4 --optimizer adamw --data hdf5:large.h5 --batch 10 --accumulate 2 --lr 0.001 \
    --epochs 4 --loss-scale 1e32 --on-nan skip --checkpoint-every 5 "${@:2}" |
    grep -oE 'step [0-9]*: update skipped.*|parameters 0x[0-9a-f]*$'
}

# bats test_tags=full
@test "a loss scale changes no bit, and all stages skip a step whose gradients overflow" {
  [ "$(layout 2 --steps 6 --loss-scale 1024)" = "$(layout none --steps 6)" ]
  # CPUs have a matrix product in fp16 only from PyTorch 2 on.
  if grep -q '^SLURM_DDP_TORCH_\(ROOT:PATH\|FOUND:INTERNAL\)=.' "$bin/../CMakeCache.txt"; then
    local half
    half=$(layout none --steps 6 --precision fp16)
    [[ $half == "parameters 0x"* ]]
    [ "$(layout 2 --steps 6 --precision fp16)" = "$half" ]
  fi
  [ "$(layout 2x2 --steps 6 --loss-scale 1024 --clip 0.1)" = "$(layout 2x2 --steps 6 --clip 0.1)" ]
  write_large_values
  local one
  one=$(skipped 1 --checkpoint-dir whole)
  echo "$one"
  [[ $one == *"the gradients overflowed with a loss scale of 1e+32, which is now 5e+31"*"parameters 0x"* ]]
  [ "$(skipped 2 --stages 2 --checkpoint-dir ck)" = "$one" ]
  # The scale of the newest step is resumed by any layout.
  rm -rf half
  skipped 2 --stages 2 --checkpoint-dir half --epochs 2 > /dev/null
  [ "$(skipped 1 --checkpoint-dir half)" = "$(tail -n 3 <<< "$one")" ]
}

# The embedding of gpt is the weight of its last layer, too, so gradients add up in another order.
# bats test_tags=full
@test "two pipelines of gpt on text reach the loss of one process" {
  cat "$here"/docs/*.md > text
  local gpt=(--model gpt --data text:text --layers 4 --width 32 --context 32 --batch 4 --lr 0.05 --steps 40)
  local one
  one=$(losses 1 "${gpt[@]}" --accumulate 8)
  are_close "$one" "$(losses 4 "${gpt[@]}" --accumulate 4 --stages 2)"
  are_close "$one" "$(losses 2 "${gpt[@]}" --accumulate 8 --stages 2 --chunks 2)"
  awk '{ exit !($1 < 5.2) }' <<< "$one"  # it has learned something
}

# bats test_tags=full
@test "a checkpoint of any layout resumes in any other" {
  local layouts=(none 2 2-interleaved 4 2x2) from to one halves
  one=$(layout none --steps 12)
  halves=$(layout 2x2 --steps 12)  # adds up gradients in another order
  [ "$halves" != "$one" ]
  for from in "${layouts[@]}"; do
    layout "$from" --steps 6 --checkpoint-dir "saved-$from" > /dev/null
  done
  for from in "${layouts[@]}"; do
    for to in "${layouts[@]}"; do
      cp -r "saved-$from" copy
      sum=$(layout "$to" --steps 12 --checkpoint-dir copy)
      rm -r copy
      echo "$from to $to: $sum"
      if [ "$from" = 2x2 ] && [ "$to" = 2x2 ]; then
        [ "$sum" = "$halves" ]
      elif [ "$from" != 2x2 ] && [ "$to" != 2x2 ]; then
        [ "$sum" = "$one" ]
      fi
    done
  done
  # Only the order of additions differs.
  are_close "$(losses 1 "${mlp[@]}" --steps 12 --checkpoint-dir saved-2x2)" "$(losses 1 "${mlp[@]}" --steps 12)"
}

# bats test_tags=full
@test "each rank saves its own stages, and a weight that two stages have once" {
  cat "$here"/docs/*.md > text
  local gpt=(--model gpt --data text:text --layers 2 --width 16 --context 16 --batch 2 --accumulate 4)
  local full
  full=$(sum 4 "${gpt[@]}" --stages 2 --steps 6)
  ranks 4 "${gpt[@]}" --stages 2 --steps 3 --checkpoint-dir saved --checkpoint-share-mb 1000
  run -0 "$bin/ddp-ckpt" show saved
  [ "$(grep -c 'model/tokens.weight' <<< "$output")" -eq 1 ]
  [[ $output =~ model/tokens.weight[^$'\n']*rank-00000-of-00002 ]]
  [[ $output =~ optim/blocks.0.qkv.weight/momentum_buffer[^$'\n']*rank-00000-of-00002 ]]
  [[ $output =~ optim/blocks.1.qkv.weight/momentum_buffer[^$'\n']*rank-00001-of-00002 ]]
  [[ $output =~ model/norm.weight[^$'\n']*rank-00001-of-00002 ]]
  ranks 1 "${gpt[@]}" --steps 3 --checkpoint-dir whole
  [ "$("$bin/ddp-ckpt" show whole | grep -oE '^(model|optim)/.*\]')" = \
    "$("$bin/ddp-ckpt" show saved | grep -oE '^(model|optim)/.*\]')" ]
  [ "$(sum 4 "${gpt[@]}" --stages 2 --steps 6 --checkpoint-dir saved)" = "$full" ]
}

# bats test_tags=full
@test "a model with buffers resumes from stages" {
  local model=(--model cifar-cnn --width 4 --data synthetic --batch 4 --accumulate 2) one
  one=$(sum 1 "${model[@]}" --steps 4)
  ranks 2 "${model[@]}" --stages 2 --steps 2 --checkpoint-dir saved
  cp -r saved copy
  [ "$(sum 1 "${model[@]}" --steps 4 --checkpoint-dir saved)" = "$one" ]
  [ "$(sum 2 "${model[@]}" --stages 2 --steps 4 --checkpoint-dir copy)" = "$one" ]
}

# bats test_tags=full
@test "a stopped run with stages saves, and resumes with the same bits" {
  local status=0 job one
  one=$(layout 2 --steps 1000 --log-every 100)
  ranks 2 "${mlp[@]}" --stages 2 --steps 1000 --log-every 100 --checkpoint-dir saved > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q 'step 100/' log
  kill -TERM "$(rank_pids "$job" | sed -n 1p)"
  wait "$job" || status=$?
  [ "$status" -eq 75 ]
  [ "$(layout 2 --steps 1000 --log-every 100 --checkpoint-dir saved)" = "$one" ]
}

@test "the start names the stages, ranks, nodes, pieces and parameters" {
  run -0 --separate-stderr ranks 4 "${mlp[@]}" --stages 2 --steps 1 --accumulate 1
  [[ $output =~ "stages         2 on 2 ranks, schedule 1f1b" ]]
  [[ $output =~ "16 x 1 micro-batch x 2 pipelines" ]]
  [[ $output =~ "  0      0,2 "[^$'\n']*"hidden.0 to hidden.2"\ +[0-9]+ ]]
  [[ $output =~ "  1      1,3 "[^$'\n']*"hidden.3 to output"\ +[0-9]+ ]]
  # shellcheck disable=SC2154  # set by run
  [[ $stderr == *"warning: 1 micro-batch in 2 stages leaves the ranks idle for 50% of a step; use --accumulate 8"* ]]
}

# bats test_tags=full
@test "stages that do not fit the model or the ranks are refused on all ranks with one sentence" {
  refused_by_two 2 "the model has 3 pieces, which cannot be divided among 4 stages" --layers 2 --stages 2 --chunks 2 --accumulate 2
  refused_by_two 2 "2 ranks cannot be divided into pipelines of 3 (--stages)" --stages 3
  refused_by_two 2 "the balance 2,2 has 4 pieces in 2 stages, but the model has 3" --stages 2 --stage-balance 2,2
  refused_by_two 2 "all parameters of the stage of rank 0 are frozen" --stages 2 --freeze 'hidden.*'
}

# unusable TEXT ARGS...: the command line is refused with one sentence.
unusable() {
  run -2 "$train" "${@:2}"
  [ "${#lines[@]}" -eq 1 ]
  [[ $output == *"$1"* ]]
}

# bats test_tags=full
@test "options that do not go together with stages are refused with one sentence" {
  local both="--stages does not go together with"
  unusable "--stage-balance 3,0 leaves stage 1 without pieces" --stages 2 --stage-balance 3,0
  unusable "not '2;1'" --stages 2 --stage-balance "2;1"
  unusable "needs a multiple of 2 micro-batches, not --accumulate 3; use 4" --stages 2 --chunks 2 --accumulate 3
  unusable "--chunks 2 gives each rank several stages" --stages 2 --chunks 2 --pipeline-schedule gpipe
  unusable "add --chunks 2" --stages 2 --pipeline-schedule interleaved
  unusable "zb-h1 needs layers whose backward is split" --stages 2 --pipeline-schedule zb-h1
  unusable "add --stages 2 or more" --chunks 2
  unusable "$both --shard;" --stages 2 --shard optimizer
  unusable "$both --staleness;" --stages 2 --staleness 1
  unusable "$both --local-steps;" --stages 2 --local-steps 4
  unusable "$both --comm-hook;" --stages 2 --comm-hook bf16
  unusable "$both --reduce-type;" --stages 2 --reduce-type bf16
  unusable "$both --channels-last;" --stages 2 --channels-last
  unusable "$both --graph;" --stages 2 --graph auto
  unusable "$both --ema;" --stages 2 --ema 0.9
  unusable "$both --offload-optimizer;" --stages 2 --offload-optimizer "$work"
  unusable "$both --param-type bf16;" --stages 2 --precision bf16 --param-type bf16
  unusable "$both --init-from;" --stages 2 --init-from "$work"
}

# end_of RANK TEXT ARGS...: kills the rank when the log has TEXT; the others name it and its stages.
end_of() {
  local victim=$1 text=$2 status=0 job
  shift 2
  ranks 4 "${mlp[@]}" --width 256 --stages 2 --chunks 2 --steps 100000 --log-every 1 "$@" > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q "$text" log
  kill -KILL "$(rank_pids "$job" | sed -n $((victim + 1))p)"
  wait "$job" || status=$?
  [ "$status" -ne 0 ]
  grep -E "rank $victim .*exited unexpectedly.*$3" log
}

@test "a rank that is killed in a step is named with its stages" {
  end_of 3 'step 5/' 2> /dev/null || { cat log && false; }
  grep -E 'it ran stages 1 and 3 of the pipeline in step [0-9]+' log
}

@test "run.json has the stages, and how long ranks computed and waited" {
  # Wide layers, because on a busy machine only their time is that of the stages.
  ranks 2 "${mlp[@]}" --width 256 --stages 2 --stage-balance 1,7 --steps 40 --report-dir report
  python3 - << 'END'
import json

run = json.load(open("report/run.json"))
pipeline = run["pipeline"]
assert run["settings"]["stages"] == 2, run["settings"]
assert pipeline["ranks_per_pipeline"] == 2 and pipeline["pipelines"] == 1 and pipeline["stages"] == 2
assert pipeline["schedule"] == "1f1b" and pipeline["chunks"] == 1 and pipeline["micro_batches"] == 4
assert pipeline["balance"] == [1, 7] and len(pipeline["pieces"]) == 8
assert sum(pipeline["stage_parameters"]) == run["parameters"]
assert abs(pipeline["predicted_idle_share"] - 1 / 5) < 1e-9
assert pipeline["idle_share_of_balance"] > 1 / 5
first, last = pipeline["stage_seconds"]
assert first < last, "stage 1 has more layers"
assert pipeline["better"]["balance"] != [1, 7]
assert pipeline["better"]["idle_share"] < pipeline["idle_share_of_balance"]
for rank in pipeline["ranks"]:
    assert abs(rank["computing_share"] + rank["waiting_share"] - 1) < 1e-9
assert "sharding" not in run or run["sharding"] is None
END
  run -0 "$bin/ddp-report" run report --markdown report.md
  grep -F "Stage 1 (hidden.1 to output) is too heavy" report.md
  grep -E "With --stage-balance [0-9],[0-9], the ranks would be idle for" report.md
}
