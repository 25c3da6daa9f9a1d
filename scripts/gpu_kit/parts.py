# SPDX-License-Identifier: Apache-2.0
"""The commands of each part. A function per part returns its steps."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys

from libraries import GRAPH_LIBRARY, is_of_machine
from machine import nccl_text, nccl_version
from runner import Step, kit_manifest
from shard_parts import shard_steps, shards
from step_parts import ceilings, large_steps, launch_bound_steps, nvidia_smi
from trainings import (DONE, SHARES_A_GPU, kill_one_of_two_ranks, program, ranks, shared_gpu, test, trainings_on,
                       understand_training, unless_there)

HERE = pathlib.Path(__file__).resolve().parent


# ---- cpu

def where_libraries_come_from(session):
    """Asks the dynamic linker for the libraries of all programs, plugins and libraries of the kit."""
    linkers = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
    linker = next(path for path in linkers if os.path.exists(path))
    variables = {**os.environ, **session.machine.environment()}
    patterns = ("bin/*", "tests/*", "lib/*", "mpi/bin/*", "mpi/lib/*/*")
    # The library of graphs needs PyTorch's CUDA half, and is loaded only on a GPU.
    files = [path for pattern in patterns for path in session.kit.glob(pattern) if path.name != GRAPH_LIBRARY]
    # Beside PyTorch are the libraries of CUDA. Some installers make links to files elsewhere.
    beside_torch = (f"{session.machine.torch.parent}/", f"{session.machine.torch.resolve().parent}/")
    origins, foreign = {}, set()
    for file in files:
        done = subprocess.run([linker, "--list", str(file)], capture_output=True, text=True, env=variables, check=False)
        session.log.write(f"{file}:\n{done.stdout}{done.stderr}")
        for line in done.stdout.splitlines():
            match = re.match(r"\s*(\S+) => (\S+)", line)
            if not match:
                continue
            name, path = match[1], match[2]
            origin = ("kit" if path.startswith(f"{session.kit}/") else
                      "PyTorch" if os.path.normpath(path).startswith(beside_torch) else
                      "machine" if is_of_machine(name) else "elsewhere")
            origins.setdefault(origin, set()).add(name)
            if origin == "elsewhere" or path == "not":
                foreign.add(f"{name} => {path}")
    counts = {origin: len(names) for origin, names in sorted(origins.items())}
    note = ", ".join(f"{count} from {origin}" for origin, count in counts.items())
    if foreign:
        note = "from elsewhere: " + ", ".join(sorted(foreign))
    return not foreign, note, {**counts, "foreign": sorted(foreign)}


def cpu(session):
    train, report = program(session, "ddp-train"), program(session, "ddp-report")
    return [
        Step("libraries", function=where_libraries_come_from),
        Step("version", [train, "--version"], shown=".+"),
        Step("train on one rank", [train, "--epochs", 2, "--report-dir", "one"], limit=90, expected="^done",
             shown="^done.*"),
        Step("train on two ranks", ranks(session, 2, train, "--epochs", 2, "--report-dir", "two"), limit=90,
             expected="^done", shown="^done.*"),
        Step("checkpoint", [train, "--epochs", 1, "--checkpoint-dir", "checkpoints"], limit=60, expected="^done"),
        Step("resume on two ranks", ranks(session, 2, train, "--epochs", 2, "--checkpoint-dir", "checkpoints"),
             limit=60, expected="resumed from", shown=".*resumed from.*"),
        Step("verify the checkpoint", [program(session, "ddp-ckpt"), "verify", "checkpoints"], shown=".+"),
        Step("kill -9 of one of two ranks", function=kill_one_of_two_ranks),
        Step("node check", [program(session, "ddp-check"), "node"], exit_codes=(0, 1, 2),
             shown="^ddp-check node .*"),
        Step("report of a run", [report, "run", "two"], expected="step"),
        Step("report of a sweep", [report, "sweep", "one", "two", "--html", "sweep.html"]),
    ]


# ---- tests on GPUs

def understand_tests(text):
    """Reads what GoogleTest says."""
    counts = {}
    for word, key in (("PASSED", "passed"), ("SKIPPED", "skipped"), ("FAILED", "failed")):
        found = re.search(rf"^\[\s+{word}\s+\] (\d+) test", text, re.MULTILINE)
        counts[key] = int(found[1]) if found else 0
    failed = sorted(set(re.findall(r"^\[\s+FAILED\s+\] ([\w/]+\.[\w/]+)", text, re.MULTILINE)))
    reasons = sorted(set(re.findall(r": Skipped\n(.+)", text)))
    note = f"{counts['passed']} passed, {counts['skipped']} skipped, {counts['failed']} failed"
    if failed:
        note += ": " + ", ".join(failed)
    elif counts["passed"] == 0 and reasons:
        note += ": " + reasons[0]
    return note, {**counts, "names": failed, "reasons": reasons}, counts["passed"] > 0 and counts["failed"] == 0


def tests_on_gpus(session, name, filter_text, title, **more):
    file = test(session, name)
    return Step(title, [file, f"--gtest_filter={filter_text}"], skip=unless_there(file), needs_gpu=True,
                understand=understand_tests, limit=more.pop("limit", 150), **more)


TORCH_FACTS = """
import torch
p = torch.cuda.get_device_properties(0)
print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, NCCL {torch.cuda.nccl.version()}, {p.name}, "
      f"{p.multi_processor_count} SMs, {p.total_memory / 2**30:.0f} GiB")
"""


def load_extra_nccl(session):
    version = nccl_version(session.machine.extra_nccl)
    note = f"NCCL {nccl_text(version)}" if version else "it does not load, or is not NCCL"
    return version > 0, note, {"version": nccl_text(version), "packed": kit_manifest(session.kit).get("nccl")}


def all_reduces_of_extra_nccl(session):
    """The first commands on a GPU: whether the NCCL in the kit, most of whose code may have been blanked, works."""
    file = session.machine.extra_nccl
    first_gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    library = {"GPU_TEST_NCCL_LIBRARY": str(file), "CUDA_VISIBLE_DEVICES": first_gpu}
    shared = {**library, **SHARES_A_GPU}
    steps = [Step("the extra NCCL loads", function=load_extra_nccl, needs_gpu=True),
             tests_on_gpus(session, "nccl_gpu_test", "*.AllReduce/One", "its all-reduces, one rank",
                           environment=library),
             tests_on_gpus(session, "nccl_gpu_test", "*.AllReduce/Two", "its all-reduces, two ranks on one GPU",
                           environment=shared)]
    for step in steps:
        step.skip = step.skip or session.machine.no_gpu or session.machine.no_extra_nccl
    return steps


def understand_node_check(session):
    """Reads what the check found about GPUs. A problem of the machine is a finding, not a failure."""
    values = json.loads((session.work / "node.json").read_text())
    of_gpus = [finding for finding in values["findings"] if finding["check"].startswith("gpu.")]
    bad = [finding["check"] for finding in of_gpus if finding["severity"] != "OK"]
    copies = [f"{finding['check']} {finding['value']:.3g} {finding['unit']}" for finding in of_gpus
              if finding["unit"] == "GB/s"]
    return ", ".join([f"{len(of_gpus)} findings about GPUs", *copies, *(f"{name} is not OK" for name in bad)]), values, True


def smoke(session):
    return [
        *all_reduces_of_extra_nccl(session),
        nvidia_smi("nvidia-smi"),
        Step("PyTorch sees the GPU", [sys.executable, "-c", TORCH_FACTS], of_kit=False, needs_gpu=True, limit=90,
             shown="^torch.*"),
        Step("version", [program(session, "ddp-train"), "--version"], needs_gpu=True, shown=".+"),
        Step("node check", [program(session, "ddp-check"), "node"], exit_codes=(0, 1, 2), needs_gpu=True,
             shown="^ddp-check node .*"),
        Step("node check with copies", [program(session, "ddp-check"), "node", "--gpu-copies", "--json", "node.json"],
             exit_codes=(0, 1, 2), needs_gpu=True, understand=lambda _: understand_node_check(session)),
        tests_on_gpus(session, "nccl_gpu_test", "*/One:NcclStart*", "nccl_gpu_test, one rank"),
    ]


def correctness(session):
    variables, impossible = shared_gpu(session)
    steps = [tests_on_gpus(session, "nccl_gpu_test", "*/One:NcclStart*", "nccl_gpu_test, one rank"),
             tests_on_gpus(session, "nccl_gpu_test", "*/Two", "nccl_gpu_test, two ranks", environment=variables)]
    steps[-1].skip = steps[-1].skip or impossible
    # Calls of CUDA that may fail are no errors: NCCL asks for kernels of other GPUs.
    memcheck = [session.machine.sanitizer or "compute-sanitizer", "--tool", "memcheck", "--report-api-errors", "no",
                "--error-exitcode", 9]
    checked = Step("compute-sanitizer memcheck",
                   [*memcheck, test(session, "nccl_gpu_test"), "--gtest_filter=*/One-*Error*"],
                   needs_gpu=True, limit=150, understand=understand_tests)
    if not session.machine.no_gpu and not session.machine.sanitizer:
        checked.skip = "this machine has no compute-sanitizer"
    return [*steps, checked]


# ---- train

def compare_losses(session, names, other):
    steps = {step["name"]: step["values"] for step in session.result["steps"]}
    losses = [steps[name].get("train loss") for name in names]
    if None in losses:
        return False, "one of the two runs did not end", {}
    apart = abs(losses[0] - losses[1]) / losses[1]
    return apart < 0.05, f"train loss {losses[0]} and {losses[1]} {other}, {100 * apart:.1f} % apart", {"apart": apart}


def compare_with_cpus(session):
    """The two runs differ in the order of their sums only, so they learn about the same."""
    return compare_losses(session, (ON_DEVICE, ON_CPUS), "on CPUs")


def compare_graph(session):
    """Replays differ from eager steps in the last bits of the optimizer at most."""
    return compare_losses(session, (AS_GRAPH, ON_DEVICE), "in eager steps")


def compare_two_ranks(session, name):
    """Two ranks with half of the batch each sum in another order only."""
    return compare_losses(session, (name, ON_DEVICE), "on one rank")


def compare_interrupted(session):
    """A run in two pieces ends with the bits of a run in one."""
    steps = {step["name"]: step["values"] for step in session.result["steps"]}
    bits = [steps[name].get("parameters") for name in (IN_ONE_PIECE, IN_TWO_PIECES)]
    same = None not in bits and bits[0] == bits[1]
    return same, f"parameters {bits[0]} and {bits[1]}", {"same": same}


ON_DEVICE, ON_CPUS = "digits on the GPU", "digits on CPUs"
AS_GRAPH = "digits as a graph"
OVER_MPI, OVER_NCCL, OVER_NCCL_AS_GRAPH = ("digits on two ranks over MPI", "digits on two ranks over NCCL",
                                           "digits on two ranks over NCCL as a graph")
IN_ONE_PIECE, IN_TWO_PIECES = "without interruption", "resumed on the GPU"


def train(session, device="cuda"):
    def run(name, *options, where=device, limit=60, **more):
        command = [program(session, "ddp-train"), "--device", where, *options]
        return Step(name, command, needs_gpu=device != "cpu", limit=limit, understand=understand_training, **more)

    def saved(directory, epochs):
        return ["--optimizer", "adamw", "--epochs", epochs, "--checkpoint-dir", directory]

    def on_two_ranks(name, *options, **more):
        step = run(name, "--epochs", 3, "--batch", 32, *options, **more)
        step.command = ranks(session, 2, *step.command)
        return [step, Step(f"compare {name} with one rank", skip=step.skip, needs_gpu=step.needs_gpu,
                           function=lambda session: compare_two_ranks(session, name))]

    graph = ["--graph", "auto" if device == "cpu" else "on"]
    variables, impossible = trainings_on(session)
    over_nccl = {} if device == "cpu" else {"environment": variables, "skip": impossible}
    nccl = [] if device == "cpu" else ["--backend", "nccl"]
    gpt = ["--model", "gpt", "--data", f"text:{HERE / 'parts.py'}", "--batch", 8, "--steps", 50]
    resnet = ["--model", "resnet18", "--data", "synthetic", "--batch", 64, "--steps", 50]
    return [
        run(ON_DEVICE, "--epochs", 3, "--report-dir", "gpu"),
        run(ON_CPUS, "--epochs", 3, "--report-dir", "cpus", where="cpu"),
        Step("compare the loss with CPUs", function=compare_with_cpus, needs_gpu=device != "cpu"),
        run(AS_GRAPH, "--epochs", 3, *graph),
        Step("compare the loss with eager steps", function=compare_graph, needs_gpu=device != "cpu"),
        *on_two_ranks(OVER_MPI, "--backend", "mpi"),
        *on_two_ranks(OVER_NCCL, *nccl, **over_nccl),
        *on_two_ranks(OVER_NCCL_AS_GRAPH, *nccl, *graph, **over_nccl),
        run("a graph that clips, scales and skips", "--epochs", 1, "--clip", 1, "--loss-scale", 1024, "--on-nan",
            "skip", "--optimizer", "adamw", *graph),
        run(IN_ONE_PIECE, *saved("whole", 2)),
        run("the first half", *saved("halves", 1)),
        run(IN_TWO_PIECES, *saved("halves", 2), expected="resumed from"),
        Step("compare the bits after resuming", function=compare_interrupted, needs_gpu=device != "cpu"),
        run("begun on CPUs", *saved("moved", 1), where="cpu"),
        run("continued on the GPU", *saved("moved", 2), expected="resumed from"),
        run("continued on CPUs", *saved("moved", 3), where="cpu", expected="resumed from"),
        run("clipping and accumulation", "--clip", 1, "--accumulate", 2, "--epochs", 1),
        run("fp16 with loss scaling", "--precision", "fp16", "--epochs", 1),
        run("gpt in bf16", *gpt, "--precision", "bf16", limit=90),
        run("gpt in bf16 as a graph", *gpt, "--precision", "bf16", *graph, limit=90),
        run("gpt with bf16 weights", *gpt, "--precision", "bf16", "--param-type", "bf16", limit=90),
        run("gpt with bf16 weights as a graph", *gpt, "--precision", "bf16", "--param-type", "bf16", *graph, limit=90),
        run("gpt with checkpointed activations", *gpt, "--precision", "bf16", "--checkpoint-activations", limit=90),
        run("resnet18", *resnet, limit=90),
        run("resnet18 as a graph", *resnet, *graph, limit=90),
        run("resnet18 in channels-last memory as a graph", *resnet, "--channels-last", *graph, limit=90),
        Step("report of a run", [program(session, "ddp-report"), "run", "gpu"], expected="step",
             needs_gpu=device != "cpu"),
    ]


# ---- faults

# Of the GPU's memory, for PyTorch.
SMALL_MEMORY = "per_process_memory_fraction:0.01"


def faults(session):
    variables, impossible = shared_gpu(session)
    two = tests_on_gpus(session, "nccl_gpu_test", "*Error*/Two:*MissingRank*/Two:*DoesNotEnd*/Two",
                        "failures amid collectives, two ranks", environment=variables)
    two.skip = two.skip or impossible
    of_trainings, _ = trainings_on(session)
    on_gpus = functools.partial(kill_one_of_two_ranks, options=("--device", "cuda", "--backend", "nccl"),
                                environment=of_trainings)
    cost = test(session, "nccl_launch_cost")
    return [
        Step("a CUDA_VISIBLE_DEVICES without GPUs", [cost, 1, 1], environment={"CUDA_VISIBLE_DEVICES": "99"},
             needs_gpu=True, expected="this process sees no GPU", shown="this process sees no GPU[^\"]*",
             skip=unless_there(cost)),
        Step("out of memory", [program(session, "ddp-train"), "--device", "cuda", "--model", "resnet18", "--data",
                               "synthetic", "--batch", 9000, "--steps", 1],
             environment={"PYTORCH_ALLOC_CONF": SMALL_MEMORY, "PYTORCH_CUDA_ALLOC_CONF": SMALL_MEMORY},
             exit_codes=(1,), needs_gpu=True, expected="CUDA out of memory.*A smaller --batch", shown="ddp-train:.*"),
        tests_on_gpus(session, "nccl_gpu_test", "NcclStart*", "a GPU that is not there, two ranks on one GPU"),
        tests_on_gpus(session, "nccl_gpu_test", "*Error*/One", "failures amid collectives, one rank"),
        two,
        Step("kill -9 of one of two ranks, on CPUs", function=kill_one_of_two_ranks, needs_gpu=True),
        Step("kill -9 of one of two ranks, over NCCL", function=on_gpus, needs_gpu=True, skip=impossible),
    ]


# ---- speed

def understand_cost(text):
    values = json.loads(text[text.index("{"):])
    if "skipped" in values or "error" in values:
        return values.get("skipped") or values["error"], values, False
    for row, raw in zip(values["group_us"], values["communicator_us"]):
        done = row["done"]
        print(f"  {row['bytes'] // 1024:6} KiB  call {row['call']['p50']:7.1f} us  "
              f"launched {row['launched']['p50']:7.1f}  done {done['p50']:8.1f}  "
              f"(p10 {done['p10']:.1f}, p90 {done['p90']:.1f})   "
              f"communicator alone: launched {raw['launched']['p50']:7.1f}")
    return f"NCCL {values['nccl']}, medians of {values['repetitions']} above", values, True


def training_speeds(session):
    """Pairs of runs that differ in --graph only: launch-bound steps, where a graph should win."""
    models = {"resnet18 batch 64": ["--model", "resnet18", "--data", "synthetic", "--batch", 64],
              "gpt batch 1": ["--model", "gpt", "--data", f"text:{HERE / 'parts.py'}", "--batch", 1]}
    for name, options in models.items():
        for mode, repetition in (("off", ""), ("on", ""), ("off", " again"), ("on", " again")):
            yield Step(f"{name}, --graph {mode}{repetition}",
                       [program(session, "ddp-train"), "--device", "cuda", "--precision", "bf16", "--optimizer", "adamw",
                        "--steps", 200, "--graph", mode, "--report-dir", "speed", *options],
                       needs_gpu=True, limit=60, understand=lambda text: understand_step_time(text, session))


def understand_step_time(text, session):
    """Reads the report that the run has just written."""
    if not DONE.search(text):
        return "", {}, False
    report = json.loads((session.work / "speed" / "run.json").read_text())
    seconds = report["step_seconds"]
    values = {name: seconds[name] for name in ("p50", "p95", "mean")}
    values["graph"] = report.get("graph", False)
    return f"{1e3 * seconds['p50']:.3f} ms a step (p95 {1e3 * seconds['p95']:.3f})", values, True


def speed(session):
    variables, impossible = shared_gpu(session)
    cost = test(session, "nccl_launch_cost")
    return [
        nvidia_smi("clocks before"),
        ceilings(),
        Step("launch cost of all-reduce, one rank", [cost, 1, 200], needs_gpu=True, limit=120, skip=unless_there(cost),
             understand=understand_cost),
        Step("launch cost of all-reduce, two ranks", [cost, 2, 200], needs_gpu=True, limit=150, environment=variables,
             skip=unless_there(cost) or impossible, understand=understand_cost),
        *training_speeds(session),
        nvidia_smi("clocks after"),
    ]


PARTS = {"cpu": cpu, "smoke": smoke, "correctness": correctness, "train": train, "faults": faults, "speed": speed,
         "steps": launch_bound_steps, "large-steps": large_steps, "shards": shards, "shard-steps": shard_steps}
