#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train --local-steps with several processes: what it equals, resuming in the middle of a round,
# two nodes, ranks that fail, and options that do not go together.

bats_require_minimum_version 1.5.0

load training

setup() { training_setup; }

small=(--model mlp --width 32 --batch 16 --lr 0.02)

@test "local steps of one step without momentum train as well as data parallelism, and post-local begins with its bits" {
  run -0 ranks 3 "${small[@]}" --momentum 0 --steps 30 --report-dir ddp
  whole=$(parameters)
  run -0 ranks 3 "${small[@]}" --momentum 0 --steps 30 --local-steps 1 --report-dir local
  [[ $output == *"local steps"*"parameters are averaged every 1 step"* ]]
  python3 - <<'PY'
import csv, json
a, b = ([float(row["loss"]) for row in csv.DictReader(open(f"{d}/steps.csv"))] for d in ("ddp", "local"))
assert len(a) == len(b) == 30, (len(a), len(b))
worst = max(abs(x - y) for x, y in zip(a, b))
assert worst < 1e-4, worst
ddp, local = (json.load(open(f"{d}/run.json")) for d in ("ddp", "local"))
assert "local_steps" not in ddp, ddp["local_steps"]
assert local["local_steps"]["averages"] == 30, local["local_steps"]
assert local["local_steps"]["bytes_per_average"] == 4 * local["parameters"], local["local_steps"]
PY
  run -0 ranks 3 "${small[@]}" --momentum 0 --steps 30 --local-steps 4 --local-from 30
  [ "$whole" = "$(parameters)" ]
}

# bats test_tags=full
@test "a run that stops in the middle of a round resumes with the same bits" {
  for options in "--momentum 0.9" "--optimizer adamw --outer nesterov"; do
    read -ra words <<< "$options --local-steps 8 --local-from 3"
    rm -rf ck
    run -0 ranks 3 "${small[@]}" "${words[@]}" --steps 40
    whole=$(parameters)
    for steps in 2 15 19 40; do
      run -0 ranks 3 "${small[@]}" "${words[@]}" --steps "$steps" --checkpoint-dir ck --checkpoint-every 5
      run -0 "$bin/ddp-ckpt" verify ck
    done
    run -0 ranks 3 "${small[@]}" "${words[@]}" --steps 40 --checkpoint-dir ck
    [ "$whole" = "$(parameters)" ]
  done
}

# bats test_tags=full
@test "a checkpoint from the middle of a round is the mean of the ranks for every other run" {
  run -0 ranks 3 "${small[@]}" --local-steps 8 --steps 20 --checkpoint-dir three
  mean=$(parameters)
  cp -r three one
  cp -r three plain
  run -0 ranks 1 "${small[@]}" --local-steps 8 --steps 20 --checkpoint-dir one
  [ "$mean" = "$(parameters)" ]
  run -0 ranks 1 "${small[@]}" --local-steps 8 --steps 30 --checkpoint-dir one
  [[ $output == *"continue with the mean of the parameters and the optimizer's state that rank 0 had, because the checkpoint has those of 3 ranks"* ]]
  run -0 ranks 2 "${small[@]}" --steps 20 --checkpoint-dir plain
  [ "$mean" = "$(parameters)" ]
  run -0 ranks 2 "${small[@]}" --steps 30 --checkpoint-dir plain
}

# bats test_tags=full
@test "two nodes average within a node in each step, and with each other now and then" {
  unshare --mount true || skip "no right to make namespaces (needs root)"
  mkdir shm0 shm1
  export train
  # shellcheck disable=SC2016  # expanded in each rank's shell
  nodes() {
    timeout 180 mpirun -n 4 unshare --mount bash -c '
      mount --bind "shm$((OMPI_COMM_WORLD_RANK / 2))" /dev/shm && exec "$train" "$@"' rank "$@"
  }
  options=("${small[@]}" --local-steps 6 --local-within node --optimizer adamw --check-parameters 1)
  run -0 nodes "${options[@]}" --steps 30
  whole=$(parameters)
  run -0 nodes "${options[@]}" --steps 16 --checkpoint-dir ck
  run -0 nodes "${options[@]}" --steps 30 --checkpoint-dir ck
  [ "$whole" = "$(parameters)" ]
  # On one node there is nothing to average beside the gradients.
  run -0 ranks 4 "${small[@]}" --optimizer adamw --steps 30
  one=$(parameters)
  [ "$whole" != "$one" ]
  run -0 ranks 4 "${options[@]}" --steps 30
  [ "$one" = "$(parameters)" ]
}

# bats test_tags=full
@test "a killed rank costs the steps since the last checkpoint" {
  options=("${small[@]}" --local-steps 10 --epochs 100000 --log-every 10)
  killed_rank_is_named 'step 50/' "${options[@]}" --checkpoint-dir ck --checkpoint-every 10
  run -0 "$bin/ddp-ckpt" verify ck
  newest=$(compgen -G 'ck/step-*' | sort | tail -n 1)
  step=$((10#${newest##*-}))
  [ "$step" -ge 30 ]
  run -0 ranks 3 "${small[@]}" --local-steps 10 --steps $((step + 15)) --checkpoint-dir ck
  [[ $output == *"resumed from"*"(step $step, made by 3 ranks)"* ]]
  resumed=$(parameters)
  run -0 ranks 3 "${small[@]}" --local-steps 10 --steps $((step + 15))
  [ "$resumed" = "$(parameters)" ]
}

# bats test_tags=full
@test "a run that is told to stop in the middle of a round continues with the same bits" {
  options=("${small[@]}" --local-steps 1000 --epochs 100 --log-every 10)
  ranks 2 "${options[@]}" --checkpoint-dir ck > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q 'step 20/' log
  kill -USR1 "$(rank_pids "$job" | sed -n 2p)"
  ended_with 75
  newest=$(compgen -G 'ck/step-*' | sort | tail -n 1)
  step=$((10#${newest##*-}))
  run -0 ranks 2 "${small[@]}" --local-steps 1000 --steps $((step + 7)) --checkpoint-dir ck
  resumed=$(parameters)
  run -0 ranks 2 "${small[@]}" --local-steps 1000 --steps $((step + 7))
  [ "$resumed" = "$(parameters)" ]
}

@test "a NaN loss stops all ranks with the name of its rank, or is skipped by that rank alone" {
  /usr/bin/python3 -c "
import h5py, numpy
x = numpy.random.default_rng(1).random((200, 4), 'float32')
x[33, 2] = numpy.nan
with h5py.File('nan.h5', 'w') as f:
    f['x'] = x
    f['y'] = numpy.arange(200) % 2"
  run -1 ranks 2 --data hdf5:nan.h5 --batch 10 --local-steps 4
  [ "$(spoken | wc -l)" -eq 1 ]
  [[ $(spoken) =~ "not finite".*"rank "[01] || $(spoken) =~ "rank "[01].*"not finite" ]]
  run -0 ranks 2 --data hdf5:nan.h5 --batch 10 --local-steps 4 --on-nan skip
  [ "$(grep -c 'warning: rank [01] skipped the update of its step [0-9]*: the loss is not finite on rank [01]' <<< "$output")" -eq 1 ]
  [[ $output =~ eval\ loss\ [0-9.]+, ]]
}

@test "ranks with other numbers of local steps are named" {
  export train
  # shellcheck disable=SC2016  # expanded in each rank's shell
  run -2 timeout 60 mpirun -n 3 bash -c '
    exec "$train" --local-steps $((OMPI_COMM_WORLD_RANK == 1 ? 5 : 4))'
  [ "$(spoken | wc -l)" -eq 1 ]
  [[ $(spoken) == *"rank 1 has local_steps 5"* ]]
}

# bats test_tags=full
@test "options that do not go together are refused" {
  refused 2 "cannot be combined with --shard" --local-steps 4 --shard optimizer
  refused 2 "cannot be combined with --ema" --local-steps 4 --ema 0.9
  refused 2 "cannot be combined with --comm-hook" --local-steps 4 --comm-hook bf16
  refused 2 "two ways not to wait" --local-steps 4 --staleness 1
}

@test "the commands in docs/local_steps.md run" {
  awk '/^```sh/ { code = 1; next } /^```/ { code = 0 } code' "$here/docs/local_steps.md" > commands
  [ "$(grep -c '^mpirun ' commands)" -eq 4 ]
  PATH=$bin:$PATH run -0 timeout 170 bash -e commands
  [ "$(grep -c '^done: ' <<< "$output")" -eq 4 ]
}
