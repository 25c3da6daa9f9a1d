#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train with several processes, started by mpirun: the same numbers for any number of ranks, and
# failures that stop all ranks within seconds with one sentence.

bats_require_minimum_version 1.5.0

load training

setup() { training_setup; }

# Waits for background job $1, which must fail.
wait_for_failure() {
  local status=0
  wait "$1" || status=$?
  [ "$status" -ne 0 ]
}

@test "two ranks and two accumulated micro-batches give bitwise identical results" {
  run -0 ranks 2 --epochs 3 --batch 32
  two=$(parameters)
  run -0 "$train" --epochs 3 --batch 32 --accumulate 2
  [ "$two" = "$(parameters)" ]
}

@test "1, 2 and 3 ranks with the same global batch follow one loss curve" {
  for n in 1 2 3; do
    run -0 ranks $n --epochs 2 --batch $((48 / n)) --report-dir "r$n"
  done
  for n in 2 3; do
    run -0 python3 - "r$n/steps.csv" <<'PY'
import csv, sys
one, many = ([float(r["loss"]) for r in csv.DictReader(open(f))] for f in ("r1/steps.csv", sys.argv[1]))
assert len(one) == len(many) == 66, (len(one), len(many))
assert all(abs(a - b) < 1e-4 for a, b in zip(one, many)), max(abs(a - b) for a, b in zip(one, many))
PY
  done
}

# A time namespace gives rank 1 a steady clock of its own, as another node has. Ranks that do not get their CPUs leave
# collectives at times that do not show how their clocks differ; the trace must then say so.
@test "the trace shows all ranks on one timeline, although their clocks differ" {
  local elsewhere="unshare --time --monotonic 5000 --fork --kill-child"
  $elsewhere true || skip "no time namespaces here: they need root, and Linux 5.6"
  run -0 timeout 180 mpirun -n 2 bash -c "[ \"\$OMPI_COMM_WORLD_RANK\" = 0 ] || exec $elsewhere \"\$@\"; exec \"\$@\"" rank \
    "$train" --epochs 2 --batch 32 --report-dir report
  run -0 python3 - report/trace.json <<'PY'
import json, statistics, sys
trace = json.load(open(sys.argv[1]))
other = trace["otherData"]
print(other)
ends = {0: [], 1: []}
for event in trace["traceEvents"]:
    if event["ph"] == "X" and event["tid"] == 1:
        ends[event["pid"]].append(event["ts"] + event["dur"])
assert len(ends[0]) == len(ends[1]) >= 20, {rank: len(list) for rank, list in ends.items()}
if other["clocks"] == "unknown":
    assert "between nodes, at the median" in other["reason"], other
else:
    apart = statistics.median(abs(a - b) for a, b in zip(ends[0], ends[1]))
    assert other["clocks"] == "aligned" and apart < 1000, f"{other}, {apart} us apart"
PY
}

# Sample i is the only one with input i, so training changes column i of the first layer if and only
# if it used sample i. The number of samples used equals the number of samples, so each was used
# once.
@test "4, then 3, then 2 ranks in one epoch use every sample once" {
  /usr/bin/python3 - <<'PY'
import h5py, numpy
with h5py.File("unit.h5", "w") as file:
    file["x"] = numpy.eye(568, dtype="float32")
    file["y"] = numpy.arange(568) % 10
PY
  local same=(--data hdf5:unit.h5 --width 64 --layers 1 --batch 16 --momentum 0 --checkpoint-dir ck)
  run -0 ranks 2 "${same[@]}" --steps 1 --lr 1e-30 --checkpoint-dir untrained
  run -0 ranks 4 "${same[@]}" --steps 3
  run -0 ranks 3 "${same[@]}" --steps 5
  [[ $output == *"(step 3, made by 4 ranks)"* ]]
  run -0 ranks 2 "${same[@]}"
  [[ $output == *"(step 5, made by 3 ranks)"* ]]
  /usr/bin/python3 - <<'PY'
import h5py
weights = [h5py.File(f"{directory}/model.h5")["model/hidden.0.weight"][...]
           for directory in ("untrained/step-00000001", "ck/step-00000012")]
used = (weights[0] != weights[1]).any(axis=0)
trained_on = [i for i in range(568) if i % 10 != 9]
assert [i for i in range(568) if used[i]] == trained_on
assert len(trained_on) == 3 * 4 * 16 + 2 * 3 * 16 + (12 - 5) * 2 * 16
PY
}

@test "a run that is killed and resumed gives bitwise the same result as an uninterrupted one" {
  run -0 ranks 2 --model mnist-cnn --epochs 6 --batch 32
  whole=$(parameters)
  ranks 2 --model mnist-cnn --epochs 6 --batch 32 --checkpoint-dir ck --checkpoint-every 7 \
    > killed.log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" compgen -G 'ck/step-*'
  kill -KILL "$(rank_pids "$job" | tail -n 1)"
  wait_for_failure "$job"
  grep -E '^ddp-train: rank 1 \(.*process [0-9]+\) exited unexpectedly' killed.log
  run -0 ranks 2 --model mnist-cnn --epochs 6 --batch 32 --checkpoint-dir ck --checkpoint-every 7
  [[ $output == *"resumed from "*"/ck/step-"* ]]
  [ "$whole" = "$(parameters)" ]
}

# bats test_tags=full
@test "a stopped rank is identified when the timeout expires, and no process is left behind" {
  ranks 2 --epochs 100000 --timeout 2 > stopped.log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q '^epoch 2/' stopped.log
  mapfile -t pids < <(rank_pids "$job")
  kill -STOP "${pids[1]}"
  wait_for_failure "$job"
  grep -E '^ddp-train: rank 1 \(.*, process [0-9]+\) does not answer: stopped.*; rank 0 waited 2 s in all_reduce #[0-9]+ \(.*\) for rank 1' stopped.log ||
    { cat stopped.log; false; }
  for pid in "${pids[@]}"; do
    for _ in $(seq 600); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    run ! kill -0 "$pid"
  done
}

# bats test_tags=full
@test "--silence sets how long a stopped rank is tolerated" {
  ranks 2 --epochs 100000 --silence 2 > stopped.log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q '^epoch 2/' stopped.log
  mapfile -t pids < <(rank_pids "$job")
  kill -STOP "${pids[1]}"
  wait_for_failure "$job"
  grep -E '^ddp-train: rank 1 \(.*, process [0-9]+\) has been silent for 2 s, but the machine answers: it is stopped' stopped.log ||
    { cat stopped.log; false; }
}

@test "wrong arguments are refused with one sentence" {
  refused 2 "not a directory" --data mnist:/nowhere
  refused 2 "use digits, mnist:DIR, cifar10:DIR, text:FILE, hdf5:FILE or synthetic" --data cifar
  refused_by_two 2 "larger than the 1618 training samples; use --batch 809 or less" --batch 5000
  refused 2 "unknown model 'vgg'" --model vgg
  refused 2 "unknown optimizer 'lion'" --optimizer lion
  refused 2 "--param-type bf16 needs --precision bf16" --param-type bf16
}

# Which of these is missing first depends on the libtorch of this build.
# bats test_tags=full
@test "--device cuda names what is missing on a machine without GPUs" {
  [ ! -e /proc/driver/nvidia/version ] || skip "this machine has an NVIDIA driver"
  refused_by_two 2 "the NCCL backend cannot start (all 2 ranks, the first on $(hostname)): " --device cuda
  [[ $(spoken) =~ "training on GPUs needs PyTorch 2.11 or newer, but this program was built with "|\
"/libtorch_cuda.so cannot be loaded: "|"this machine has no NVIDIA driver; run on a node with GPUs" ]] ||
    { spoken; false; }
  refused_by_two 2 "the MPI backend cannot use GPUs (all 2 ranks, the first on $(hostname)): " --device cuda --backend mpi
  refused_by_two 2 "the MPI backend cannot use GPUs (all 2 ranks, the first on $(hostname)): " --device cuda --deterministic
}

@test "numbers that no run can have are refused with one sentence" {
  refused 2 "use --batch 1618 or less" --batch 1000000000
  refused 2 "use fewer micro-batches or fewer ranks" --batch 1000000000 --accumulate 1000000000
  run -0 ranks 1 --steps 1 --workers 1024 --seed 18446744073709551615
}

@test "unusable directories are detected before training" {
  refused 2 "cannot create the checkpoint directory /proc/x" --checkpoint-dir /proc/x
  refused 2 "cannot create the report directory /proc/x" --report-dir /proc/x
  refused 1 "is not a checkpoint" --checkpoint-dir ck --resume "$work/nothing"
}

@test "a checkpoint of another model is refused and stays unchanged" {
  run -0 ranks 2 --epochs 1 --checkpoint-dir ck
  before=$(find ck -type f -exec md5sum {} + | sort)
  refused 2 "resume with the model it was saved from" --model mnist-cnn --checkpoint-dir ck
  refused 2 "already holds checkpoints" --checkpoint-dir ck --resume never
  refused 2 "is itself a checkpoint: use --checkpoint-dir $work/ck " --checkpoint-dir ck/step-00000012
  [ "$before" = "$(find ck -type f -exec md5sum {} + | sort)" ]
}

@test "--evaluate-only evaluates what was saved as the run did, and writes nothing" {
  run -0 ranks 2 --epochs 1 --checkpoint-dir ck
  [[ $output =~ (eval\ loss\ [0-9.]+,\ accuracy\ [0-9.]+),.*(parameters\ 0x[0-9a-f]+) ]]
  local known=${BASH_REMATCH[1]} weights=${BASH_REMATCH[2]}
  before=$(find ck -type f -exec md5sum {} + | sort)
  run -0 ranks 2 --checkpoint-dir ck --evaluate-only
  [[ $output == *"evaluated step 12: $known, $weights"* ]]
  run -0 ranks 1 --resume ck/step-00000012 --evaluate-only
  [[ $output == *"evaluated step 12: "*"$weights"* ]]
  [ "$before" = "$(find ck -type f -exec md5sum {} + | sort)" ]
  refused 2 "empty holds no checkpoint to evaluate" --checkpoint-dir empty --evaluate-only
  refused 2 "there are no weights to evaluate" --evaluate-only
  [ ! -e empty ]
}

@test "a truncated IDX file is named" {
  mkdir mnist
  python3 - <<'PY'
import struct
for part in ("train", "t10k"):
    open(f"mnist/{part}-images-idx3-ubyte", "wb").write(struct.pack(">4I", 0x803, 8, 4, 4) + bytes(100))
    open(f"mnist/{part}-labels-idx1-ubyte", "wb").write(struct.pack(">2I", 0x801, 8) + bytes(8))
PY
  refused 1 "its header announces 8 x 4 x 4 elements, but it holds 100" --data mnist:mnist
}

@test "ranks that MPI did not connect exit with an error and do not train alone" {
  run -2 env WORLD_SIZE=4 "$train" --epochs 1
  [[ $(spoken) == *"need a launch plan, but MASTER_ADDR is not set; "*", or unset WORLD_SIZE if it is a leftover"* ]]
}

@test "--help and --version work" {
  run -0 "$train" --help
  [[ $output == *"Examples:"* && $output == *"--checkpoint-dir"* ]]
  run -0 "$train" --version
  [[ $output =~ ^ddp-train\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
}

@test "options can come from a file" {
  printf 'epochs=1\nbatch=32\nmodel="mnist-cnn"\n' > options.ini
  run -0 "$train" --config options.ini
  [[ $output == *"mnist-cnn"*"global batch 32"* ]]
}
