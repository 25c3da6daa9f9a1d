#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The kit for machines with a GPU: packed from a build against a PyTorch wheel, unpacked, and run on this
# machine with all that the kit must bring hidden.
#
# GPU_DAY_BUILDS names the build directories; the first has the environment with PyTorch.

bats_require_minimum_version 1.5.0

setup_file() {
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  export here
  export GPU_DAY_BUILDS=${GPU_DAY_BUILDS:-${SLURM_DDP_BUILD:-$here/build-torch2/2.11.0}}
  local build first=${GPU_DAY_BUILDS%% *} options=()
  export PYTHON_DIRECTORY=$first/venv/bin
  if [ ! -x "$first/bin/ddp-train" ] || [ ! -x "$PYTHON_DIRECTORY/python3" ]; then
    export missing="no build against a PyTorch wheel in $first; make it with tests/torch2/build 2.11.0"
    return
  fi
  for build in $GPU_DAY_BUILDS; do options+=(--build "$build"); done
  cd "$BATS_FILE_TMPDIR" || return
  "$here/scripts/gpu_day" pack "${options[@]}" --output gpu-kit.tar.xz > pack.log
  # As on the other machine.
  python3 -m tarfile -e gpu-kit.tar.xz .
}

setup() {
  cd "$BATS_FILE_TMPDIR" || return
  gpu_day=$BATS_FILE_TMPDIR/gpu-kit/gpu_day
}

need_kit() { [ -z "${missing:-}" ] || skip "$missing"; }

bare() { PATH=$PYTHON_DIRECTORY:$PATH "$here/tests/torch2/bare_machine" "$@"; }

# no_gpu: succeeds if this machine has no GPU.
no_gpu() { ! nvidia-smi > /dev/null 2>&1; }

@test "the kit has less than 30 MB, all programs, and nothing of PyTorch, CUDA or the C library" {
  need_kit
  cat pack.log
  [ "$(stat -c %s gpu-kit.tar.xz)" -lt 30000000 ]
  for program in bin/ddp-{train,check,report,bench,ckpt} tests/nccl_gpu_test \
    tests/nccl_launch_cost mpi/bin/mpirun; do
    [ -x "gpu-kit/$program" ]
    run ! grep -q 'debug_info' <(readelf -SW "gpu-kit/$program")
  done
  run ! grep -E 'lib/lib(c|m|stdc\+\+|gcc_s|torch.*|c10.*|cud.*|nccl.*|gomp)\.so' gpu-kit/manifest.json
  run -0 grep -E '"(version|commit)": "[0-9a-f.]{5,}"|"torch": "2' gpu-kit/manifest.json
  [ "${#lines[@]}" -eq 3 ]
}

@test "a machine without MPI, HDF5, fmt, SLURM and network runs the part cpu" {
  need_kit
  unshare --mount --net true || skip "no right to hide files from a process (needs root)"
  # Nothing that the kit brings is left on this machine.
  run -127 bare "${GPU_DAY_BUILDS%% *}/bin/ddp-train" --version
  [[ $output == *"file too short"* ]]
  run -126 bare mpirun --version
  run -0 bare "$gpu_day" run cpu --out "$BATS_TEST_TMPDIR/results"
  [ "${#lines[@]}" -le 30 ]
  [[ $output == *"from kit"* ]]
  python3 - "$BATS_TEST_TMPDIR/results/cpu.json" << 'PYTHON'
import json, sys
part = json.load(open(sys.argv[1]))
assert part["finished"] and not part["skipped"] and not part["machine"]["gpus"] < 0, part
results = {step["name"]: step["result"] for step in part["steps"]}
assert len(results) >= 10 and set(results.values()) == {"ok"}, results
libraries = part["steps"][0]["values"]
assert libraries["kit"] > 20 and libraries["foreign"] == [], libraries
assert 0 < next(s for s in part["steps"] if s["name"].startswith("kill"))["values"]["seconds"] < 60
PYTHON
  [ -s "$BATS_TEST_TMPDIR/results/cpu.log" ]
}

@test "without a GPU the other parts skip each command, say why, and exit with 0" {
  need_kit
  no_gpu || skip "this machine has a GPU"
  PATH=$PYTHON_DIRECTORY:$PATH run -0 "$gpu_day" run smoke correctness train faults speed steps large-steps shards shard-steps --out "$BATS_TEST_TMPDIR/results"
  python3 - "$BATS_TEST_TMPDIR/results" << 'PYTHON'
import json, pathlib, sys
for name in ("smoke", "correctness", "train", "faults", "speed", "steps", "large-steps", "shards", "shard-steps"):
    part = json.loads((pathlib.Path(sys.argv[1]) / f"{name}.json").read_text())
    assert part["skipped"] and part["finished"] and part["machine"]["gpus"] == 0, part
    assert len(part["steps"]) >= 3
    for step in part["steps"]:
        assert step["result"] == "skipped" and "NVIDIA driver" in step["note"], step
PYTHON
  [ "$(grep -c '^skipped .*NVIDIA driver' <<< "$output")" -ge 30 ]
  PATH=$PYTHON_DIRECTORY:$PATH run -0 env LD_LIBRARY_PATH="$BATS_FILE_TMPDIR/gpu-kit/lib" gpu-kit/tests/nccl_launch_cost
  [[ $output == *'"skipped": "'* ]]
}

# The fake of CUDA and NCCL in place of the libraries, and a machine that claims two GPUs.
@test "with GPUs, the tests run on them, and a command that the machine lacks is one failure" {
  need_kit
  no_gpu || skip "this machine has a GPU"
  local build
  for build in $GPU_DAY_BUILDS; do
    [ ! -e "$build/lib/libslurm_ddp_fake_gpu.so" ] || export GPU_TEST_CUDA_LIBRARY=$build/lib/libslurm_ddp_fake_gpu.so
  done
  export GPU_TEST_NCCL_LIBRARY=$GPU_TEST_CUDA_LIBRARY
  PATH=$PYTHON_DIRECTORY:$PATH run -0 python3 - "$BATS_TEST_TMPDIR/results" << 'PYTHON'
import json, os, pathlib, subprocess, sys, types
kit = pathlib.Path("gpu-kit").resolve()
sys.path.insert(0, str(kit / "gpu_kit"))
import machine, parts, runner
machine.count_gpus = lambda: (2, "")
out = pathlib.Path(sys.argv[1])
extra = pathlib.Path(os.environ["GPU_TEST_NCCL_LIBRARY"])
options = types.SimpleNamespace(parts=["smoke", "correctness"], out=out, nccl=extra, minutes=8)
assert runner.run(kit, options, parts.PARTS) == 1
smoke, correctness = (json.loads((out / f"{name}.json").read_text()) for name in options.parts)
results = {step["name"]: step for step in smoke["steps"] + correctness["steps"]}
assert results["nvidia-smi"]["result"] == "failed" and "nvidia-smi" in results["nvidia-smi"]["note"], results
assert not smoke["skipped"] and not correctness["skipped"]
for ranks in ("one rank", "two ranks"):
    step = results[f"nccl_gpu_test, {ranks}"]
    assert step["result"] == "ok" and step["values"]["passed"] > 10, step
assert results["the extra NCCL loads"]["note"].startswith("NCCL 2."), results["the extra NCCL loads"]
for ranks in ("one rank", "two ranks on one GPU"):
    step = results[f"its all-reduces, {ranks}"]
    assert step["result"] == "ok" and step["values"]["passed"] == 1, step
assert results["compute-sanitizer memcheck"]["result"] == "skipped"
variables = {**os.environ, **machine.Machine(kit).environment()}
cost = subprocess.run([kit / "tests/nccl_launch_cost", "2", "5", "1"], env=variables, capture_output=True, text=True, check=True)
note, values, passed = parts.understand_cost(cost.stdout)
assert passed and [row["bytes"] >> 10 for row in values["group_us"]] == [1, 4, 16, 64, 256, 1024], values
for row in values["group_us"] + values["communicator_us"]:
    assert 0 < row["call"]["p50"] <= row["launched"]["p90"] and row["done"]["p10"] <= row["done"]["p90"], row
PYTHON
}

# On CPUs, so that its commands and comparisons are tried before they meet a GPU.
@test "the part train compares losses, bits and checkpoints" {
  need_kit
  PATH=$PYTHON_DIRECTORY:$PATH run -0 python3 - "$BATS_TEST_TMPDIR/results" << 'PYTHON'
import json, pathlib, sys, types
kit = pathlib.Path("gpu-kit").resolve()
sys.path.insert(0, str(kit / "gpu_kit"))
import parts, runner
parts.PARTS["train"] = lambda session: [step for step in parts.train(session, "cpu")
                                        if not step.name.startswith(("gpt", "resnet"))]
out = pathlib.Path(sys.argv[1])
assert runner.run(kit, types.SimpleNamespace(parts=["train"], out=out, nccl=None, minutes=8), parts.PARTS) == 0
steps = {step["name"]: step for step in json.loads((out / "train.json").read_text())["steps"]}
assert len(steps) == 22 and {step["result"] for step in steps.values()} == {"ok"}, steps
assert steps["compare the loss with CPUs"]["values"]["apart"] == 0, steps
assert steps["compare the loss with eager steps"]["values"]["apart"] == 0, steps
assert steps[f"compare {parts.OVER_NCCL} with one rank"]["values"]["apart"] < 0.05, steps
values = {parts.ON_DEVICE: {"train loss": 0.6}, parts.ON_CPUS: {"train loss": 0.5},
          parts.AS_GRAPH: {"train loss": 0.7}, parts.IN_ONE_PIECE: {"parameters": "0x1"}, parts.IN_TWO_PIECES: {"parameters": "0x2"}}
session = types.SimpleNamespace(result={"steps": [{"name": name, "values": v} for name, v in values.items()]})
assert not parts.compare_graph(session)[0]
assert not parts.compare_with_cpus(session)[0] and not parts.compare_interrupted(session)[0]
assert parts.understand_training("ddp-train: no GPU") == ("", {}, False)
PYTHON
}

# Tiny steps on CPUs. The peer needs a Python that can import PyTorch, which that of the build cannot.
@test "the parts with steps compare ours with a plain loop's and Python's, and say why they cannot" {
  need_kit
  /usr/bin/python3 -c 'import torch.distributed as d; exit(not d.is_gloo_available())' ||
    skip "no PyTorch with Gloo for Python here (apt-get install python3-torch)"
  PATH=$PYTHON_DIRECTORY:$PATH LD_LIBRARY_PATH=/inherited run -0 python3 - "$BATS_TEST_TMPDIR/results" << 'PYTHON'
import json, pathlib, sys, types
kit = pathlib.Path("gpu-kit").resolve()
sys.path.insert(0, str(kit / "gpu_kit"))
import parts, runner, step_cases
few = {"steps": 4, "block": 2}
small = [step_cases.gpt("tiny gpt", 2, {("eager", "eager"): 1e-6}, width=16, layers=1, heads=2, context=8, vocabulary=50, **few)]
def cases(session):
    steps = parts.launch_bound_steps(session, small, "cpu", "/usr/bin/python3", (("eager", "eager"), ("eager", "graph"), ("graph", "eager")))
    assert "LD_LIBRARY_PATH=/inherited" in (session.work / "python-for-peers").read_text()
    return steps
parts.PARTS["steps"] = cases
out = pathlib.Path(sys.argv[1])
code = runner.run(kit, types.SimpleNamespace(parts=["steps"], out=out, nccl=None, minutes=8), parts.PARTS)
steps = {step["name"]: step for step in json.loads((out / "steps.json").read_text())["steps"]}
plain, eager = steps["tiny gpt: ours and a plain loop"], steps["tiny gpt: our eager step and Python's eager"]
assert plain["result"] == eager["result"] == "ok", steps
for step in (plain, eager):
    values = step["values"]
    assert 0 < values["ratio"]["p10"] <= values["ratio"]["p50"] <= values["ratio"]["p90"], values
    assert values["TFLOPps"] > 0 and values["our_ms"] > 0 and "of_ceiling" not in values, values
assert plain["values"]["result"]["optimizer"] == "sgd" and plain["values"]["aim"] == 1.01, plain
result = eager["values"]["result"]
assert (result["optimizer"], result["precision"], result["device"]) == ("adamw", "bf16", "cpu"), result
assert result["parameters"] == 50 * 16 + 8 * 16 + 12 * 16**2 + 13 * 16 + 2 * 16, result
assert result["compared"]["python_ddp_gloo"]["step"] == "eager"
# An aim that is missed is a finding, not a failure.
assert eager["values"]["reached"] is False and "the aim of 1e-06 is missed" in eager["note"], eager
graph = steps["tiny gpt: our eager step and Python's graph"]
assert graph["result"] == "failed" and "not compared with python_ddp_gloo: " in graph["note"], graph
assert "--python-step graph" in graph["note"], graph
ours = steps["tiny gpt: our graph step and Python's eager"]
assert ours["result"] == "failed" and "--graph needs --device cuda" in ours["note"], ours
assert code == 1  # because of the graphs
PYTHON
}

# On CPUs, where a strategy that ends with other bits fails as it would on GPUs.
@test "the part shards compares bits, losses and memory, and finds runs that differ" {
  need_kit
  unshare --mount true || skip "no right to mount file systems (needs root)"
  PATH=$PYTHON_DIRECTORY:$PATH run -0 python3 - "$BATS_TEST_TMPDIR/results" << 'PYTHON'
import json, pathlib, sys, types
kit = pathlib.Path("gpu-kit").resolve()
sys.path.insert(0, str(kit / "gpu_kit"))
import parts, runner, shard_parts
gpt = ["--model", "gpt", "--data", f"text:{kit}/gpu_kit/parts.py", "--width", 32, "--heads", 2, "--batch", 4,
       "--context", 32, "--steps", 2, "--optimizer", "adamw"]
parts.PARTS["shards"] = lambda session: shard_parts.shards(session, "cpu", gpt=gpt, large_gpt=gpt, layers=(2,))
out = pathlib.Path(sys.argv[1])
options = types.SimpleNamespace(parts=["shards"], out=out, nccl=None, minutes=8)
assert runner.run(kit, options, parts.PARTS) == 0
steps = {step["name"]: step for step in json.loads((out / "shards.json").read_text())["steps"]}
assert len(steps) >= 40 and {step["result"] for step in steps.values()} == {"ok"}, steps
assert len(steps["compare the bits"]["values"]["bits"]) == len(shard_parts.STRATEGIES), steps
assert steps["compare the bits after changes of the strategy"]["values"]["bits"][0].startswith("0x"), steps
for strategy in shard_parts.STRATEGIES:
    values = steps[f"memory of 4 ranks, {strategy}"]["values"]
    assert values["measured"] > 0 and values["predicted"] > 0, values
recorded = [{"name": name, "values": values} for name, values in (
    ("a", {"parameters": "0x1", "train loss": 0.5}), ("b", {"parameters": "0x2", "train loss": 0.6}), ("broken", {}))]
session = types.SimpleNamespace(result={"steps": recorded})
assert not shard_parts.compare_bits(session, ("a", "b"))[0] and not shard_parts.compare_bits(session, ("a", "broken"))[0]
assert not shard_parts.compare_losses(session, ("a", "b"), 0.1)[0] and shard_parts.compare_losses(session, ("a", "b"), 0.21)[0]
assert not shard_parts.compare_losses(session, ("a", "broken"), 0.21)[0]
PYTHON
  run ! grep -q "^tmpfs .*/nodes/" /proc/mounts
}

@test "the part shard-steps compares with our data parallelism and with Python's shards" {
  python3 - "$here/scripts/gpu_kit" << 'PYTHON'
import sys
sys.path.insert(0, sys.argv[1])
import shard_parts
ratio = lambda *values: {"ratio_per_round": dict(zip(("p10", "p50", "p90"), values))}
shards = {**ratio(0.5, 0.8, 1.0), "step_seconds": {"p50": 0.02}}
result = {"compared": {"ours_with_shards": shards, "python_fsdp2_nccl": {"ours_with_shards": ratio(0.6, 0.7, 0.8)}}}
note, values, passed = shard_parts.compare_shards(result, "python_fsdp2_nccl")
assert passed and values["over_our_ddp"] == {"p10": 1.0, "p50": 1.25, "p90": 2.0}, values
assert note == "20.0 ms, 1.250 (1.000 to 2.000) of our DDP's time, 0.700 (0.600 to 0.800) of python_fsdp2_nccl's", note
assert shard_parts.compare_shards(result, None)[0] == "20.0 ms, 1.250 (1.000 to 2.000) of our DDP's time"
note, _, passed = shard_parts.compare_shards({**result, "not_compared": {"python_fsdp2_nccl": "too old"}}, "python_fsdp2_nccl")
assert not passed and note.endswith("not compared with python_fsdp2_nccl: too old"), note
PYTHON
}

@test "rates of steps count the operations that are known for their models" {
  python3 - "$here/scripts/gpu_kit" << 'PYTHON'
import sys
sys.path.insert(0, sys.argv[1])
import step_cases as cases, step_parts
def giga_products(image, classes, blocks, block):
    return round(cases.resnet_operations(1, image, classes, blocks, block) / 6e9, 2)
# Multiplications with additions in 1e9, as published.
assert giga_products(224, 1000, (3, 4, 6, 3), cases.bottleneck) == 4.09
assert giga_products(224, 1000, (2, 2, 2, 2), cases.basic) == 1.81
assert giga_products(32, 10, (2, 2, 2, 2), cases.basic) == 0.56
gpt = cases.gpt_operations(16, 1024, 768, 12, 50257)
assert abs(gpt / (6 * 124e6 * 16384 + 12 * 12 * 768 * 1024 * 16384) - 1) < 0.01, gpt
quantiles = {"p10": 0.5, "p50": 0.8, "p90": 0.9}
result = {"precision": "bf16", "step_seconds": {name: 0.1 for name in quantiles},
          "compared": {"peer": {"ratio_per_round": quantiles, "step_seconds": {"p50": 0.125}}}}
case = cases.Case("case", [], 4e13)
note, values, passed = step_parts.compare(case, result, "peer", 0.8, 800)
assert passed and values["TFLOPps"] == 400 and values["of_ceiling"] == 0.5 and values["reached"], values
assert note == "0.800 (0.500 to 0.900) of its time, ours 100.00 (100.00 to 100.00) ms, 400 TFLOP/s, 50 % of the ceiling; the aim of 0.8 is reached", note
assert not step_parts.compare(case, result, "peer", 0.79, 800)[1]["reached"]
assert "of_ceiling" not in step_parts.compare(case, {**result, "precision": "fp32"}, "peer", None, 800)[1]
PYTHON
}

@test "a command that takes longer than its limit is ended, and the next one runs" {
  mkdir -p "$BATS_TEST_TMPDIR/kit"
  echo '{"torch": null}' > "$BATS_TEST_TMPDIR/kit/manifest.json"
  python3 - "$here/scripts/gpu_kit" "$BATS_TEST_TMPDIR" << 'PYTHON'
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import machine, runner
out = pathlib.Path(sys.argv[2])
steps = [runner.Step("slow", ["sleep", 1000], limit=1.5), runner.Step("next", ["echo", "here"], shown=".+")]
assert not runner.run_part(out / "kit", machine.Machine(out / "kit"), "part", lambda session: steps, out, 1)
slow, following = json.loads((out / "part.json").read_text())["steps"]
assert slow["result"] == "timeout" and slow["note"] == "not done after 2 s", slow
assert following["result"] == "ok" and following["note"] == "here", following
PYTHON
}

@test "a part that is cut off keeps its results, and a command that fails does not stop the next" {
  need_kit
  cp -r gpu-kit "$BATS_TEST_TMPDIR/broken"
  printf '#!/bin/sh\necho out of order\nexit 3\n' > "$BATS_TEST_TMPDIR/broken/bin/ddp-report"
  chmod +x "$BATS_TEST_TMPDIR/broken/bin/ddp-report"
  PATH=$PYTHON_DIRECTORY:$PATH run -1 "$BATS_TEST_TMPDIR/broken/gpu_day" run cpu --minutes 0.5 --out "$BATS_TEST_TMPDIR/results"
  [[ $output == *"failed "*"report of a run: exit code 3: out of order"* || $output == *"the time of this part is over"* ]]
  [[ $output == *"report of a sweep"* ]]
  cd "$BATS_TEST_TMPDIR" || return
  PATH=$PYTHON_DIRECTORY:$PATH TMPDIR=$PWD "$gpu_day" run cpu --out cut > /dev/null 3>&- &
  local run=$! status=0
  until grep -qs '"result": "ok"' cut/cpu.json; do kill -0 "$run" && sleep 0.1; done
  kill "$run"
  wait "$run" || status=$?
  [ "$status" -eq 143 ]
  python3 -c 'import json; part = json.load(open("cut/cpu.json")); assert not part["finished"] and part["steps"]'
  run ! pgrep -f "$BATS_FILE_TMPDIR/gpu-kit/(bin|mpi)"  # the running command ended with it
}

# As mpirun starts its ranks.
@test "processes in groups of their own end with their command, and so do those that ignore the request" {
  python3 - "$here/scripts/gpu_kit" << 'PYTHON'
import subprocess, sys
sys.path.insert(0, sys.argv[1])
import runner
command = """set -m; sleep 1000 & (trap "" TERM; while :; do sleep 1000; done) & echo started; wait"""
process = subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, start_new_session=True)
process.stdout.readline()
assert len(runner.processes_of(process.pid)) >= 3
runner.end_session(process)
assert runner.processes_of(process.pid) == [], runner.processes_of(process.pid)
PYTHON
}

@test "usage errors are one sentence" {
  need_kit
  PATH=$PYTHON_DIRECTORY:$PATH run -2 "$gpu_day" run all
  [ "$output" = "gpu_day: there is no part 'all'; the parts are cpu, smoke, correctness, train, faults, speed, steps, large-steps, shards, shard-steps" ]
  run -2 "$here/scripts/gpu_day" run cpu
  [[ $output == "gpu_day: "*" is not an unpacked kit; make one with 'scripts/gpu_day pack'"* ]]
}

@test "pack refuses what could not run" {
  mkdir -p build/bin
  run -2 "$here/scripts/gpu_day" pack --build build
  [[ $output == "gpu_day: there are no programs in build; build first, or give --build DIR" ]]
  cp /bin/true build/bin/ddp-train
  run -2 "$here/scripts/gpu_day" pack --build build
  [[ $output == "gpu_day: build has no bin/ddp-check, "*"; build them, or pack without them (--partial)" ]]
  run -2 "$here/scripts/gpu_day" pack --build build --output kit.zip
  [[ $output == "gpu_day: the name of kit.zip must end in .tar.xz or .tar.zst" ]]
  rm -r build
}

@test "help lists all parts" {
  run -0 "$here/scripts/gpu_day" --help
  for part in cpu smoke correctness train faults speed steps large-steps; do grep -qE "^  $part " <<< "$output"; done
}
