#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests ddp-bench with its Python peers: it measures both, the peers exit when it exits, and without
# PyTorch it reports the reason and measures the rest. Needs DDP_BENCH and MPIEXEC.

bats_require_minimum_version 1.5.0

setup() {
  # shellcheck source=tests/ranks/mpirun.bash
  source "$BATS_TEST_DIRNAME/../../ranks/mpirun.bash"
  cd "$BATS_TEST_TMPDIR" || exit 1
  few=(--width 16 --batch 4 --steps 4 --block 2 --json result.json)
  small=("${few[@]}" --layers 2)
}

ranks() {
  local n=$1
  shift
  timeout 100 "$MPIEXEC" -n "$n" "$DDP_BENCH" "$@"
}

has_torch() { /usr/bin/python3 -c 'import torch.distributed as d; exit(not d.is_gloo_available())'; }

json() { /usr/bin/python3 -c "import json; d = json.load(open('result.json')); print($1)"; }

# Prints the processes with the peer's script that process $1 or one of its children started.
peers_of() {
  local pid
  for pid in $(pgrep -P "$1"); do
    if tr '\0' ' ' < "/proc/$pid/cmdline" | grep -q python_ddp_peer.py; then echo "$pid"; fi
    peers_of "$pid"
  done
}

@test "two ranks and their Python peers are measured for several models" {
  has_torch || skip "python3-torch with Gloo is not installed"
  for model in "mlp --layers 2" mnist-cnn "gpt --layers 1"; do
    # shellcheck disable=SC2086  # a model and its options
    ranks 2 step --model $model "${few[@]}"
    [ "$(json "d['world_size'], 'python_ddp_gloo' in d['compared']")" = "2 True" ]
    [ "$(json "all(s['p10'] > 0 for s in (d['step_seconds'], d['compared']['python_ddp_gloo']['step_seconds']))")" = True ]
    [ "$(json "'not_compared' in d")" = False ]
  done
}

@test "the trainer is compared with a loop of one's own on two ranks" {
  ranks 2 trainer "${small[@]}"
  [ "$(json "sorted(d['compared']), d['steps']")" = "['own_loop', 'trainer'] 4" ]
  [ "$(json "all(c['step_seconds']['p10'] > 0 for c in d['compared'].values())")" = True ]
}

@test "a residual network in bf16 and channels-last is the same model on both sides" {
  has_torch || skip "python3-torch with Gloo is not installed"
  ranks 1 step --model resnet50 --image 40 --classes 7 --precision bf16 --channels-last "${few[@]}"
  [ "$(json "d['precision'], d['channels_last'], d['device']")" = "bf16 True cpu" ]
  # A different number of parameters would be an error.
  [ "$(json "d['compared']['python_ddp_gloo']['step'], 'not_compared' in d")" = "eager False" ]
}

@test "a step that Python cannot run is not compared, and the reason is printed" {
  has_torch || skip "python3-torch with Gloo is not installed"
  run -0 ranks 1 step "${small[@]}" --python-step graph
  [[ $output =~ "python_ddp_gloo not compared: "("PyTorch 1."[^ ]*" is too old for --python-step graph, which needs 2.4"|\
"--python-step graph needs --device cuda") ]]
  run -2 ranks 1 step "${small[@]}" --python-step quick
  [[ $output == *"--python-step: quick not in {eager,fused,graph,compile}"* ]]
}

@test "--device cuda names what is missing on a machine without GPUs" {
  [ ! -e /proc/driver/nvidia/version ] || skip "this machine has an NVIDIA driver"
  run -2 ranks 1 step "${small[@]}" --device cuda --no-python
  [[ $output == "ddp-bench: the NCCL backend cannot start (rank 0 on $(hostname)): "* ]]
  [ "${#lines[@]}" -eq 1 ]
}

@test "arguments reach Python's DistributedDataParallel, and its error message is printed" {
  has_torch || skip "python3-torch with Gloo is not installed"
  run ! ranks 2 step "${small[@]}" --python-ddp '{"no_such_argument": 1}'
  [[ $output == *"the Python peer failed"*no_such_argument* ]]
  run -2 ranks 2 step "${small[@]}" --python-ddp '[1]'
  [[ $output == *"not a JSON object"* ]]
}

# with_shards STRATEGY NAME: NAME is how Python divides a step in that way.
with_shards() {
  ranks 2 step --optimizer adamw --shard "$1" --python "$python" "${@:3}"
  [ "$(json "d['compared']['$2']['ours_with_shards']['our_p50_over_its_p50'] > 0")" = True ]
  [ "$(json "d['compared']['$2']['our_p50_over_its_p50'] > 0, 'python_ddp_gloo' in d['compared']")" = "True True" ]
  [ "$(json "'not_compared' in d")" = False ]
}

@test "a step with shards is compared with Python's ZeroRedundancyOptimizer" {
  has_torch || skip "python3-torch with Gloo is not installed"
  python=/usr/bin/python3
  with_shards optimizer python_zero1_gloo "${small[@]}" > out
  grep -qE '^ours_with_shards / python_zero1_gloo +[0-9.]+ of medians; per round p10' out
  run -0 ranks 2 step "${small[@]}" --shard optimizer --python-step compile
  [[ $output == *"python_zero1_gloo not compared: "* ]]
}

@test "a step with shards is compared with Python's FSDP2, or the reason why not is printed" {
  has_torch || skip "python3-torch with Gloo is not installed"
  for shard in gradients parameters; do
    run -0 ranks 2 step "${small[@]}" --shard "$shard"
    name=python_fsdp2_gloo
    [ "$shard" != gradients ] || name=python_fsdp2_keep_gloo
    [[ $output =~ $name" not compared: PyTorch 1."[^\ ]*" is too old for FSDP2, which needs 2.6" || \
       $output == *"ours_with_shards / $name "* ]]
  done
}

@test "a step with shards is compared with the FSDP2 of another Python" {
  python=${SLURM_DDP_TEST_PYTHON:-/usr/bin/python3}
  "$python" -c 'from torch.distributed.fsdp import fully_shard' 2> /dev/null ||
    skip "no FSDP2 in $python; SLURM_DDP_TEST_PYTHON names a Python with PyTorch 2.6 or newer"
  with_shards parameters python_fsdp2_gloo "${small[@]}"
  with_shards parameters python_fsdp2_gloo "${small[@]}" --model gpt
  with_shards gradients python_fsdp2_keep_gloo "${few[@]}" --model resnet18
}

@test "without PyTorch the rest is measured and the reason is printed" {
  run -0 ranks 2 step "${small[@]}" --python "$PWD/no-such-python"
  [[ $output == *"python_ddp_gloo not compared: cannot start $PWD/no-such-python"* ]]
  [ "$(json "'python_ddp_gloo' in d['compared'], len(d['compared']) > 0")" = "False True" ]
  printf '#!/bin/sh\nread -r line\necho "{\\"error\\": \\"No module named torch\\"}"\n' > python
  chmod +x python
  run -0 ranks 2 step "${small[@]}" --python "$PWD/python"
  [[ $output == *"not compared: No module named torch"* ]]
}

# Waits until N peers of process $1 have started, and a while longer; then kills the last one's
# rank.
kill_rank_with_peer() {
  local n=$2 waited
  for ((waited = 0; waited < 600; waited++)); do
    mapfile -t peers < <(peers_of "$1")
    [ "${#peers[@]}" -lt "$n" ] || break
    sleep 0.1
  done
  [ "${#peers[@]}" -eq "$n" ]
  sleep 3 # until the steps are running
  kill -9 "$(ps -o ppid= -p "${peers[n - 1]}" | tr -d ' ')"
}

peers_are_gone() {
  local waited list
  list=$(IFS=, && echo "${peers[*]}")
  for ((waited = 0; waited < 600; waited++)); do
    # In a container whose first process reaps no others, what has exited stays as a zombie.
    ps -o stat= -p "$list" | grep -qv '^Z' || return 0
    sleep 0.1
  done
  ps -f -p "$list"
  return 1
}

@test "a peer exits with its rank, even if the rank is killed" {
  has_torch || skip "python3-torch with Gloo is not installed"
  timeout 100 "$DDP_BENCH" step --width 64 --steps 100000 > out 2>&1 &
  local job=$!
  kill_rank_with_peer "$job" 1
  run ! wait "$job"
  peers_are_gone
}

@test "when one rank of two is killed, all peers exit" {
  has_torch || skip "python3-torch with Gloo is not installed"
  timeout 100 "$MPIEXEC" -n 2 "$DDP_BENCH" step --width 64 --steps 100000 > out 2>&1 &
  local job=$!
  kill_rank_with_peer "$job" 2
  run ! wait "$job"
  peers_are_gone
}

@test "memory use is compared with that of a plain loop" {
  ranks 2 memory --width 256 --layers 4 --json result.json
  [ "$(json "d['bytes']['after_step_3'] >= d['parameters_gradients_optimizer_bytes'] > 0")" = True ]
  [ "$(json "d['compared']['plain_loop']['bytes']['peak'] > 0")" = True ]
  [ "$(json "0 < d['largest_bucket_bytes'] <= 4 * d['parameters']")" = True ]
}

@test "a timeline has every message of the ring, with sender, receiver and size" {
  ranks 3 timeline --schedule ring --kib 12 --segment-kib 2 --json result.json
  # Each of three ranks takes 2 (n - 1) steps, each with a third of the data in two segments.
  [ "$(json "len(d['messages'])")" = 24 ]
  [ "$(json "{(m['from'], m['to']) for m in d['messages']} == {(0, 1), (1, 2), (2, 0)}")" = True ]
  [ "$(json "sum(m['bytes'] for m in d['messages'] if m['from'] == 1)")" = 16384 ]
  [ "$(json "all(0 <= m['posted'] < m['arrived'] for m in d['messages'])")" = True ]
  run -2 ranks 2 timeline --schedule star
  [[ $output == *"unknown schedule 'star'"* ]]
  run -2 ranks 1 timeline
  [[ $output == *"two ranks"* ]]
}
